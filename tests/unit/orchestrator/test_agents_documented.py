"""docs/agents.md says what templates may use, and its example is one that is kept."""

from __future__ import annotations

import re
from pathlib import Path

from services.cli.definitions import read_definitions
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.agents.templates import VARIABLES

DOCUMENT = Path(__file__).parents[3] / "docs" / "agents.md"


def test_every_variable_is_documented_with_what_it_is() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE))
    assert {name: rows.get(name) for name in VARIABLES} == dict(VARIABLES)


def test_the_example_reads_as_an_agent(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "example.yaml"
    file.write_text(example, encoding="utf-8")
    (definition,) = read_definitions(file)
    assert (definition.name, definition.body["shared"]) == ("service desk", True)
    Prompts().check(definition.body["prompt"])

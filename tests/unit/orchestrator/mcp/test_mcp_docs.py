"""The examples of docs/mcp.md and docs/guardrails.md are read as they stand there, and the small server runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from services.orchestrator.adapters.agents_toml import load_agents
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.guardrails.config_file import read_guardrails
from services.orchestrator.mcp.config_file import read_servers
from services.orchestrator.mcp.settings import Cooldown

ROOT = Path(__file__).parents[4]
ENVIRON = {"TICKETS_AUTHORIZATION": "a", "CRM_ACME_SECRET": "b", "FILES_API_KEY": "c", "MODERATION_KEY": "d"}


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"```toml\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("block", blocks("mcp.md"))
def test_each_example_of_servers_is_valid(tmp_path: Path, block: str) -> None:
    file = tmp_path / "proctor.toml"
    file.write_text(block)

    settings = read_servers(file, ENVIRON)
    agents = load_agents(file, Prompts())

    assert len(settings.servers) == len(tomllib.loads(block).get("mcp", {}).get("servers", {}))
    assert settings.servers or agents
    assert settings.cooldown is Cooldown.AUTO


@pytest.mark.parametrize("block", blocks("guardrails.md"))
def test_each_example_of_guardrails_is_valid(tmp_path: Path, block: str) -> None:
    file = tmp_path / "proctor.toml"
    file.write_text(block)

    assert len(read_guardrails(file, ENVIRON)) == len(tomllib.loads(block)["guardrails"])

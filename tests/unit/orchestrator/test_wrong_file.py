"""A wrong proctor.toml is told as wrong settings are, whichever table it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.chassis.settings import SettingsError
from services.orchestrator.bootstrap import build
from services.orchestrator.settings import Settings
from tests.support.platform import test_platform


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[databases.shop]\nurl_env = "NO_SUCH"\n', "databases.shop.url_env: the environment has no NO_SUCH"),
        (
            '[http_tools.a]\ndocument = "none.yaml"\noperations = ["*"]\n',
            "http_tools.a.document: 'none.yaml' cannot be",
        ),
        ("[agents.a]\ncolour = 1\n", "agent 'a': unknown keys ['colour']"),
        ('[mcp.servers.a]\ncommand = "x"\nurl = "y"\n', "mcp.servers.a: needs either a command"),
        ("[models.a]\ncolour = 1\n", "models.a"),
    ],
)
async def test_what_is_wrong_in_the_file_stops_the_start(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "proctor.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        await build(Settings(data_dir=tmp_path / "data", config_file=file), test_platform())
    assert all(problem.startswith("proctor.toml: ") for problem in caught.value.problems)
    assert told in str(caught.value)

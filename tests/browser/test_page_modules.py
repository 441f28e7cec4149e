"""The page's pure modules under Node, and its knowledge of the events checked against the protos."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from proctor.orchestrator.v1 import events_pb2

WEB = Path(__file__).parents[2] / "services" / "gateway" / "web"
SUITES = sorted((Path(__file__).parent / "js").glob("*.test.mjs"))


@pytest.mark.parametrize("suite", SUITES, ids=lambda path: path.name)
def test_modules_pass_their_own_suites(suite: Path) -> None:
    node = shutil.which("node")
    if node is None or _major(node) < 20:
        pytest.skip("needs Node 20 or later")
    result = subprocess.run([node, "--test", str(suite)], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def _major(node: str) -> int:
    version = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
    return int(version.lstrip("v").partition(".")[0])


def test_the_fold_knows_every_event_of_the_protos() -> None:
    source = (WEB / "js" / "fold.js").read_text()
    handlers = source[source.index("const HANDLERS") : source.index("\n};\n", source.index("const HANDLERS"))]
    known = set(re.findall(r"^  (\w+)[:(]", handlers, re.MULTILINE))
    assert known == {field.name for field in events_pb2.RunEvent.DESCRIPTOR.oneofs_by_name["event"].fields}


def test_every_vendored_file_is_named_with_its_licence() -> None:
    vendor = WEB / "vendor"
    listed = (vendor / "VENDORED.md").read_text()
    for path in vendor.rglob("*"):
        if path.suffix in (".js", ".woff2"):
            name = path.stem.removesuffix("-italic")
            assert name in listed, path
            assert path.with_name(f"{name}.LICENSE").is_file(), path


def test_modules_never_assign_html() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|setHTMLUnsafe|\beval\(|new Function"
    )
    for path in (WEB / "js").rglob("*.js"):
        code = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("//"))
        assert not forbidden.search(code), path


def test_the_page_preloads_exactly_the_modules_it_imports() -> None:
    """Without it the browser would learn of each layer of imports only after loading the one above."""
    imported: set[Path] = set()

    def walk(module: Path) -> None:
        for match in re.finditer(r'^(?:import|export)[^;]*?from "(\.[^"]+)"', module.read_text(), re.MULTILINE):
            found = (module.parent / match[1]).resolve()
            if found not in imported:
                imported.add(found)
                walk(found)

    walk((WEB / "js" / "app.js").resolve())
    preloaded = re.findall(r'rel="modulepreload" href="/assets/([^"]+)"', (WEB / "index.html").read_text())
    assert preloaded == sorted(str(path.relative_to(WEB.resolve())) for path in imported)

"""Write protos/gen from the .proto files: messages, gRPC stubs and their types.

Usage: `python protos/generate.py [--out DIR]`. `make check` runs it into a scratch folder and compares.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent


def generate(out: Path) -> None:
    """Replace `out` by freshly generated modules; raise RuntimeError when protoc refuses a file."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    plugins = Path(sys.executable).parent
    ours = sorted(HERE.glob("proctor/**/*.proto"))
    vendored = sorted((HERE / "third_party").glob("**/*.proto"))
    # third_party comes first: it lies below HERE, and protoc names a file by the first root that holds it.
    include = [f"-I{HERE / 'third_party'}", f"-I{HERE}", f"-I{files('grpc_tools') / '_proto'}"]
    messages = [
        f"--python_out={out}",
        f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}",
        f"--mypy_out=quiet:{out}",
    ]
    stubs = [
        f"--grpc_python_out={out}",
        f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}",
        f"--mypy_grpc_out=quiet:{out}",
    ]
    run([*include, *messages, *map(str, ours + vendored)])
    with_services = [path for path in ours if "\nservice " in path.read_text(encoding="utf-8")]
    run([*include, *stubs, *map(str, with_services)])


def run(arguments: list[str]) -> None:
    """Run protoc in this process; raise RuntimeError with its exit code when it fails."""
    code = protoc.main(["protoc", *arguments])
    if code != 0:
        raise RuntimeError(f"protoc ended with code {code}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "gen")
    generate(parser.parse_args().out)

"""What a newcomer sees after the start: documents go in, a question is answered, the page's address is printed."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from services.cli.layout import Layout


class Tour:
    """Ingests and asks by the same commands anyone would type, each as a process that a signal can end."""

    def __init__(self, console: Console, *, ingest: Path | None, source: str, question: str, once: bool) -> None:
        self._console = console
        self._ingest = ingest
        self._source = source
        self._question = question
        self._once = once

    async def __call__(self, layout: Layout) -> int | None:
        """Return the exit code that ends the suite, None to keep serving."""
        self._console.print(f"[bold]ready[/] at {layout.url}", highlight=False)
        code = 0
        if self._ingest is not None:
            code = await self._run(layout, "ingest", str(self._ingest), "--source", self._source)
        if self._question and code == 0:
            self._console.print(f"\n[bold]{escape(self._question)}[/]", highlight=False)
            code = await self._run(layout, "ask", self._question)
        if self._once:
            return code
        self._console.print(f"\nOpen [bold]{layout.url}[/] · API at {layout.url}/docs · Ctrl-C stops", highlight=False)
        return None

    async def _run(self, layout: Layout, *arguments: str) -> int:
        environ = dict(os.environ) | {"PROCTOR_URL": layout.url}
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "services.cli", *arguments, env=environ)
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()

"""The run_code tool: Python in the sandbox, with its output streamed and its files kept."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Any

from services.chassis.canonical import canonical_json
from services.chassis.identity import Principal
from services.orchestrator.domain.events import ProgressStream
from services.orchestrator.domain.messages import Artifact, ToolSpec
from services.orchestrator.ports import Sandbox, SandboxEnd, SandboxFile, SandboxOutput
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolDefinition, ToolResult

_PARAMETERS = canonical_json(
    {
        "type": "object",
        "properties": {
            "code": {
                "type": "string",
                "minLength": 1,
                "maxLength": 200_000,
                "description": (
                    "Python 3 to run in a fresh interpreter without network. numpy, pandas, matplotlib and sympy are "
                    "there. Print what you need; files written to the working directory and open figures are kept."
                ),
            }
        },
        "required": ["code"],
        "additionalProperties": False,
    }
)


class RunCodeTool:
    """Runs Python. The execution id is the call's key, so after a crash it re-attaches instead of running twice."""

    definition = ToolDefinition(
        spec=ToolSpec(
            name="run_code",
            description=(
                "Run Python for calculations, data and charts. A person is asked first. The result is computation, not "
                "evidence: it has no citation number."
            ),
            parameters_json=_PARAMETERS,
        ),
        title="Run Python",
        effect=Effect.IDEMPOTENT,
        consent=Consent.ASK,
        repeatable=True,
        deadline=timedelta(seconds=330),
    )

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def withheld(self, principal: Principal) -> str:
        """Code runs only where the sandbox proves its isolation."""
        del principal
        isolation = await self._sandbox.isolation()
        return "" if isolation.safe else isolation.explanation or "the sandbox is not safe"

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return status, output and files of the execution."""
        stdout: list[str] = []
        stderr: list[str] = []
        files: list[Artifact] = []
        end: SandboxEnd | None = None
        events = self._sandbox.execute(
            context.principal, execution_id=context.key, code=arguments["code"], run_id=context.run_id
        )
        async with aclosing(events) as stream:  # type: ignore[type-var]
            async for event in stream:
                match event:
                    case SandboxOutput(text=text, is_error=is_error):
                        (stderr if is_error else stdout).append(text)
                        context.progress(ProgressStream.STDERR if is_error else ProgressStream.STDOUT, text)
                    case SandboxFile(artifact=artifact):
                        files.append(artifact)
                    case SandboxEnd():
                        end = event
        assert end is not None
        text = _tell(end, "".join(stdout), "".join(stderr), files)
        return ToolResult(text=text, artifacts=tuple(files), failed=end.status != "ok")


def _tell(end: SandboxEnd, stdout: str, stderr: str, files: list[Artifact]) -> str:
    """Return the result in words that a model can act on."""
    parts = ["Sandbox computation (not evidence, no citation number)."]
    if end.status != "ok":
        parts.append(end.message or f"{end.status.upper()}: exit code {end.exit_code}")
    parts.append(f"stdout:\n{stdout}" if stdout else "stdout: (empty)")
    if stderr:
        parts.append(f"stderr:\n{stderr}")
    if files:
        parts.append(
            "files kept for the user: " + ", ".join(f"{f.name} ({f.media_type}, {f.size} bytes)" for f in files)
        )
    if end.dropped:
        parts.append("files not kept: " + "; ".join(end.dropped))
    return "\n".join(parts)

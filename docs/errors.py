"""Write docs/errors.md: every reason of failure, what it means and what to do, from the protos.

Usage: `python docs/errors.py [--out FILE]`. `make check` runs it into a scratch file and compares.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "protos/gen")]

from services.gateway.problems import http_status  # noqa: E402

PROTO = HERE.parent / "protos/proctor/errors/v1/errors.proto"
REASON = re.compile(r"((?:^  //.*\n)+)^  ERROR_REASON_(\w+) = (\d+);", re.MULTILINE)
CODES = re.compile(r"\b(" + "|".join(code.name for code in grpc.StatusCode if code is not grpc.StatusCode.OK) + r")\b")
# Numbers are given out by subject; each section ends below the next one's first.
SECTIONS = (
    (1, "Any call"),
    (20, "Runs, agents, conversations"),
    (40, "Models, tools, workflows"),
    (60, "Approvals"),
    (80, "Documents"),
    (100, "Sandbox"),
    (120, "Keys and limits"),
)
# What to do when the meaning does not say it already, by reason; else by status.
REMEDIES = {
    "UNAUTHENTICATED": "Send `Authorization: Bearer <key>`; between services, a signed token.",
    "PERMISSION_DENIED": "Use a key with the scope that the message names.",
    "INTERNAL": "Look in the log for the trace id of the message; tell us.",
    "TOO_LARGE": "Send less, or raise the limit that the message names.",
    "NOT_CONFIGURED": "Set what the message names, and start again.",
    "EVENTS_PRUNED": "Begin at `oldest`, or read the run's end from `GET /v1/runs/{id}`.",
    "REQUEST_ID_REUSED": "Give each new request an id of its own.",
    "IDEMPOTENCY_KEY_REUSED": "Give each new request a key of its own.",
    "RUN_NOT_PAUSED": "Watch the run; it works or has ended.",
    "DECISION_MISSING": "Decide every call that is listed.",
    "CONTINUATION_TOO_NEW": "Upgrade this replica; a newer one takes the run up meanwhile.",
    "CONTINUATION_CORRUPT": "Start the run again; look for what else this disk lost.",
    "ATTEMPTS_EXHAUSTED": "Find what kills the owners: see the runbook LeasesLost. Then start the run again.",
    "NAME_TAKEN": "Choose another name.",
    "READ_ONLY": "Change `proctor.toml`, or make one of another name.",
    "CONVERSATION_BUSY": "Wait for the run, or cancel it.",
    "MODEL_UNREACHABLE": "Check `OPENAI_BASE_URL` and the network; name a fallback model.",
    "MODEL_UNAUTHORIZED": "Check the model's key.",
    "MODEL_RATE_LIMITED": "Lower `max_concurrency`, raise the quota there, or name a fallback model.",
    "MODEL_FAILED": "See the server's words in the message.",
    "MODEL_STALLED": "See the state of the endpoint; name a fallback model.",
    "MODEL_TIMEOUT": "Ask for less, or name a fallback model.",
    "MODEL_STREAM_BROKEN": "Start the run again; the partial text is kept.",
    "CONTEXT_OVERFLOW": "Send less, or choose a model with a larger window.",
    "OUTPUT_INVALID": "Make the schema simpler, or choose a stronger model.",
    "URL_FORBIDDEN": "Use a public address, or let the operator allow the network.",
    "APPROVAL_DECIDED": "Nothing: the first decision stands.",
    "APPROVAL_EXPIRED": "Ask again in a new run; raise the tool's deadline if people need longer.",
    "DIGEST_MISMATCH": "Read the request again and decide what it asks now.",
    "NOT_ENTITLED": "Let somebody decide who may.",
    "SANDBOX_UNSAFE": "Run `proctor doctor` on that machine.",
    "KEY_REVOKED": "Use another key.",
}
REMEDY_BY_CODE = {
    "INVALID_ARGUMENT": "Correct what the message names.",
    "UNAUTHENTICATED": "Send valid credentials.",
    "PERMISSION_DENIED": "Use a key that may, or ask somebody who may.",
    "NOT_FOUND": "Check the id; what belongs to another tenant looks the same.",
    "ALREADY_EXISTS": "Choose another name or id.",
    "FAILED_PRECONDITION": "Change the state that the message names, then try again.",
    "ABORTED": "Read again and repeat the change.",
    "OUT_OF_RANGE": "Begin at what is kept.",
    "RESOURCE_EXHAUSTED": "Wait as long as `Retry-After` says.",
    "CANCELLED": "Nothing: you asked for it.",
    "DATA_LOSS": "Restore from a backup.",
    "UNAVAILABLE": "Try again after `Retry-After`; the stock clients do.",
    "DEADLINE_EXCEEDED": "Try again, or give it longer.",
    "INTERNAL": "Look in the log for the trace id of the message; tell us.",
}
HEAD = """# Failures by reason

Written by `docs/errors.py` from `protos/proctor/errors/v1/errors.proto`; `make docs` writes it anew.

Every failure carries a stable reason. Over gRPC it is the `reason` of the `google.rpc.ErrorInfo` in the status, with
the domain `proctor`; over HTTP the `reason` of the problem document (`application/problem+json`), on OpenAI's paths the
`code` of the error; in a run the `reason` of `run_failed`. The message names the value and the remedy; this page is for
looking them up. HTTP statuses are those of the native API.
"""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason as the proto describes it; `codes` are gRPC statuses, none for what only a run says."""

    name: str
    number: int
    meaning: str
    codes: tuple[str, ...]

    @property
    def remedy(self) -> str:
        """What to do about it."""
        if self.name in REMEDIES:
            return REMEDIES[self.name]
        return REMEDY_BY_CODE[self.codes[0]] if self.codes else "Start the run again."


def reasons() -> Iterator[Reason]:
    """Yield every reason that is sent, in the order of the numbers."""
    found = []
    for comment, name, number in REASON.findall(PROTO.read_text(encoding="utf-8")):
        text = " ".join(line.strip().removeprefix("//").strip() for line in comment.splitlines())
        if int(number):
            found.append(Reason(name, int(number), text, tuple(CODES.findall(text))))
    yield from sorted(found, key=lambda reason: reason.number)


def render() -> str:
    """Return the whole page."""
    lines = HEAD.splitlines()
    bounds = [first for first, _ in SECTIONS[1:]] + [10**6]
    known = list(reasons())
    for (first, title), end in zip(SECTIONS, bounds, strict=True):
        lines += ["", f"## {title}", "", "| reason | HTTP | gRPC | meaning | what to do |", "|---|---|---|---|---|"]
        lines += [_row(reason) for reason in known if first <= reason.number < end]
    return "\n".join(lines) + "\n"


def _row(reason: Reason) -> str:
    statuses = [str(http_status(grpc.StatusCode[code], reason.name)) for code in reason.codes]
    sentences = [s for s in re.split(r"(?<=\.) ", reason.meaning) if not CODES.match(s)]
    meaning = " ".join(sentences)
    cells = (", ".join(dict.fromkeys(statuses)) or "—", ", ".join(reason.codes) or "—", meaning, reason.remedy)
    return f"| `{reason.name}` | " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=HERE / "errors.md")
    parser.parse_args().out.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Asks a question over gRPC, as an internal service would: run it with a question as its argument.

Start the suite with a key that both sides know:

    export PROCTOR_SIGNING_KEY=$(openssl rand -hex 32)
    proctor up
"""

from __future__ import annotations

import os
import sys
import time

import grpc
import jwt

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import run_service_pb2 as pb
from proctor.orchestrator.v1 import run_service_pb2_grpc as stubs

TARGET = os.environ.get("PROCTOR_ORCHESTRATOR", "unix:.proctor/run/orchestrator.sock")


def service_token(key: str) -> str:
    """Return who we are and on whose behalf we call, signed for five minutes."""
    now = int(time.time())
    claims = {"iss": "proctor", "aud": "proctor", "iat": now, "exp": now + 300}
    return jwt.encode(claims | {"sub": "ann", "tenant": "local", "scopes": ["*"]}, key, algorithm="HS256")


def main(question: str) -> None:
    """Start a run and print its answer as it is written, then what it cites."""
    token = service_token(os.environ["PROCTOR_SIGNING_KEY"])
    with grpc.insecure_channel(TARGET) as channel:
        request = pb.StartRunRequest(input=[agent_pb2.Part(text=question)])
        replies = stubs.RunServiceStub(channel).StartRun(request, metadata=(("authorization", f"Bearer {token}"),))
        for event in (event for reply in replies for event in reply.events):
            match event.WhichOneof("event"):
                case "answer_delta" if not event.step_id:  # what a step writes is a note for the answer
                    print(event.answer_delta.text, end="", flush=True)
                case "run_completed":
                    print()
                    for citation in event.run_completed.citations:
                        if citation.cited:
                            print(f"[{citation.number}] {citation.evidence.title} · {citation.evidence.where}")
                case "run_failed":
                    sys.exit(f"{event.run_failed.reason}: {event.run_failed.message}")


if __name__ == "__main__":
    main(sys.argv[1])

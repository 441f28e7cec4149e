"""Body of a decision on an approval record."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from proctor.approval.v1 import approval_service_pb2 as pb
from services.chassis.canonical import canonical_json
from services.gateway.bodies.base import Body
from services.gateway.bodies.runs import Content, parts


class Decide(Body):
    """A decision. `approve`, `deny` and `edit` for tools, `answer` for questions, `result` for a caller's tool,
    `continue` for a run that waits for a message. The decider is whoever is authenticated.
    """

    decision: Literal["approve", "deny", "edit", "answer", "result", "continue"]
    remember: Literal["once", "conversation", "always"] | None = None
    arguments: dict[str, Any] | None = Field(default=None, description="For edit: the arguments to run instead.")
    answers: dict[str, Any] | None = Field(default=None, description="For answer: values by question id.")
    skipped: bool = False
    result: Content | None = Field(default=None, description="For result: what the tool gave.")
    failed: bool = False
    input: Content | None = Field(default=None, description="For continue: the message; without one the run ends.")
    comment: str = Field(default="", max_length=4096)
    arguments_digest: str = Field(default="", max_length=64, description="Digest the decider saw; another is refused.")
    run_id: str = Field(default="", max_length=64, description="Run the decider means; another is refused.")

    @model_validator(mode="after")
    def _members_fit_the_decision(self) -> Decide:
        belongs = {
            "arguments": ("edit", self.arguments),
            "answers": ("answer", self.answers),
            "result": ("result", self.result),
            "input": ("continue", self.input),
            "remember": ("approve", self.remember),
        }
        for name, (decision, value) in belongs.items():
            if value is not None and self.decision != decision:
                raise ValueError(f"'{name}' goes with the decision '{decision}' only")
        if self.decision == "edit" and self.arguments is None:
            raise ValueError("the decision 'edit' needs 'arguments'")
        return self

    def to_proto(self, approval_id: str) -> pb.DecideRequest:
        """Return the request."""
        request = pb.DecideRequest(
            approval_id=approval_id, comment=self.comment, arguments_digest=self.arguments_digest, run_id=self.run_id
        )
        match self.decision:
            case "approve":
                scope = f"RULE_SCOPE_{(self.remember or 'once').upper()}"
                request.approve.remember = pb.RuleScope.Value(scope)
            case "deny":
                request.deny.SetInParent()
            case "edit":
                request.edit.arguments_json = canonical_json(self.arguments)
            case "answer":
                request.answer.skipped = self.skipped
                request.answer.answers_json = b"" if self.skipped else canonical_json(self.answers or {})
            case "result":
                given = {"parts": parts(self.given().get("result", "")), "failed": self.failed}
                request.client_tool.result_json = canonical_json(given)
            case "continue":
                message = parts(self.given().get("input", ""))
                request.continue_with.input_json = canonical_json(message) if message else b""
        return request

"""Expected failures of the approval service."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from services.approval.domain import Approval, State
from services.chassis.errors import FieldViolation, ServiceError


class ApprovalNotFound(ServiceError):
    """The record does not exist, or is another tenant's."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "APPROVAL_NOT_FOUND"

    def __init__(self, approval_id: str) -> None:
        super().__init__(f"there is no approval '{approval_id}'", metadata={"approval_id": approval_id})


class ApprovalDecided(ServiceError):
    """Someone decided before, otherwise; says who and how."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "APPROVAL_DECIDED"

    def __init__(self, approval: Approval) -> None:
        by = f" by '{approval.decided_by}'" if approval.decided_by else ""
        super().__init__(
            f"approval '{approval.approval_id}' is already {approval.state}{by}; this decision changes nothing",
            metadata={
                "approval_id": approval.approval_id,
                "state": approval.state,
                "decided_by": approval.decided_by,
            },
        )


class ApprovalExpired(ServiceError):
    """The deadline passed before the decision came; the call counts as refused."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "APPROVAL_EXPIRED"

    def __init__(self, approval: Approval) -> None:
        super().__init__(
            f"approval '{approval.approval_id}' expired at {approval.deadline.isoformat()}; the call stays refused",
            metadata={
                "approval_id": approval.approval_id,
                "state": State.EXPIRED,
                "deadline": approval.deadline.isoformat(),
            },
        )


class WrongDecisionKind(ServiceError):
    """The decision does not fit what the record asks for."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "WRONG_DECISION_KIND"


class DigestMismatch(ServiceError):
    """The decider saw other arguments than those on record."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "DIGEST_MISMATCH"

    def __init__(self, approval: Approval) -> None:
        super().__init__(
            f"the arguments of approval '{approval.approval_id}' are not those you saw; read it again",
            metadata={"approval_id": approval.approval_id, "arguments_digest": approval.arguments_digest},
        )


class AnswerInvalid(ServiceError):
    """Edited arguments, answers or a result do not satisfy what was asked; violations name the places."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "ANSWER_INVALID"

    def __init__(self, what: str, violations: Sequence[FieldViolation]) -> None:
        first = f": {violations[0].field}: {violations[0].description}" if violations else ""
        super().__init__(f"{what} not valid{first}", violations=violations)


class ApprovalConflict(ServiceError):
    """The same id was requested before with another content."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "APPROVAL_CONFLICT"

    def __init__(self, approval_id: str) -> None:
        super().__init__(
            f"approval '{approval_id}' was requested before with another content; use another id",
            metadata={"approval_id": approval_id},
        )


class NotEntitled(ServiceError):
    """The principal may not decide this record."""

    code = grpc.StatusCode.PERMISSION_DENIED
    reason = "NOT_ENTITLED"


class RuleNotFound(ServiceError):
    """The allow rule does not exist, or is another's."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "RULE_NOT_FOUND"

    def __init__(self, rule_id: str) -> None:
        super().__init__(f"there is no allow rule '{rule_id}'", metadata={"rule_id": rule_id})


class PolicyInvalid(ServiceError):
    """A policy expression does not compile or names what does not exist."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "POLICY_INVALID"


class LinkInvalid(ServiceError):
    """A signed link is forged, damaged, or of another deployment."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "LINK_INVALID"

    def __init__(self) -> None:
        super().__init__("the link is not one of ours, or was damaged on its way; open the approval in the queue")

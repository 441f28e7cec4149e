"""How a model call fails. Each says whether trying again may help and what had come before."""

from __future__ import annotations

import grpc

from services.chassis.errors import ServiceError
from services.orchestrator.models.ports import CallTiming


class ModelError(ServiceError):
    """A model call that gave no reply.

    `retryable`: the same call may succeed later. `after_first_token`: pieces had been delivered, so a silent retry
    would double them; `partial_text` is the answer text among them. `timing` is set once the call has been measured.
    """

    retryable = False

    def __init__(
        self,
        model: str,
        message: str,
        *,
        after_first_token: bool = False,
        partial_text: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"model '{model}' {message}", metadata={"model": model}, retry_after=retry_after)
        self.model = model
        self.after_first_token = after_first_token
        self.partial_text = partial_text
        self.timing: CallTiming | None = None


class ModelUnreachable(ModelError):
    """No connection, or it was lost before the first token."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "MODEL_UNREACHABLE"
    retryable = True


class ModelUnauthorized(ModelError):
    """The endpoint refused the credentials."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "MODEL_UNAUTHORIZED"


class ModelRateLimited(ModelError):
    """The endpoint limits the rate; `retry_after` is what it asked for."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "MODEL_RATE_LIMITED"
    retryable = True


class ModelFailed(ModelError):
    """The endpoint answered with a failure of its own."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "MODEL_FAILED"
    retryable = True


class ModelRefused(ModelError):
    """The endpoint refused the request as it is; sending it again changes nothing."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "MODEL_FAILED"


class ModelStalled(ModelError):
    """Nothing came for longer than the gap limit."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    reason = "MODEL_STALLED"
    retryable = True


class ModelTimeout(ModelError):
    """The whole call took longer than its cap."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    reason = "MODEL_TIMEOUT"


class ModelStreamBroken(ModelError):
    """The stream ended or turned into garbage before the reply was complete."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "MODEL_STREAM_BROKEN"
    retryable = True


class ContextOverflow(ModelError):
    """The prompt does not fit the model's window."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "CONTEXT_OVERFLOW"


class OutputInvalid(ModelError):
    """The answer does not have the form asked for, also after it was asked to mend it."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "OUTPUT_INVALID"


class ModelNotFound(ServiceError):
    """The catalogue has no such model."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "MODEL_NOT_FOUND"

    def __init__(self, model_id: str) -> None:
        super().__init__(
            f"model '{model_id}' is not in the catalogue; list models to find the right id",
            metadata={"model": model_id},
        )


class UrlForbidden(ServiceError):
    """A base URL points to where user-given URLs may not."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "URL_FORBIDDEN"


class AddressForbidden(OSError):
    """A host led to an address that a user's model may not be at; raised while connecting."""


def forbidden(error: BaseException) -> bool:
    """Tell whether an address was refused anywhere below `error`: each layer wraps the one under it."""
    seen: list[BaseException | None] = [error]
    for each in seen:
        if isinstance(each, AddressForbidden):
            return True
        if each is not None and len(seen) < 50:
            seen += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
            inner = getattr(each, "os_error", None)
            seen += [inner] if isinstance(inner, BaseException) else []
    return False


class ModelUrlForbidden(ModelError):
    """The host of a user's model led to a private network when it was connected to."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "URL_FORBIDDEN"

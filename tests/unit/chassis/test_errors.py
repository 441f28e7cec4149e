from __future__ import annotations

import grpc
from google.rpc import code_pb2

from proctor.errors.v1 import errors_pb2
from services.chassis import errors
from services.chassis.errors import DETAILS_KEY, FieldViolation, InvalidRequest, ServiceError, from_rpc_error, to_status
from services.chassis.interceptors.deadline import DeadlineExceeded


def remote(error: ServiceError) -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata((DETAILS_KEY, to_status(error).SerializeToString()))
    return grpc.aio.AioRpcError(error.code, grpc.aio.Metadata(), trailing, error.message)


def test_an_error_survives_the_wire() -> None:
    error = InvalidRequest(
        "'x' is too long; use 3 characters",
        metadata={"limit": "3"},
        retry_after=1.5,
        violations=[FieldViolation(field="name", description="too long")],
    )
    read = from_rpc_error(remote(error))
    assert (read.code, read.reason, read.message) == (error.code, "INVALID_REQUEST", error.message)
    assert (read.metadata, read.retry_after, read.violations) == ({"limit": "3"}, 1.5, error.violations)


def test_an_error_without_details_has_no_reason() -> None:
    bare = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "down")
    read = from_rpc_error(bare)
    assert (read.code, read.reason, read.message) == (grpc.StatusCode.UNAVAILABLE, "", "down")


def test_every_reason_of_the_chassis_is_in_the_contract() -> None:
    known = {name.removeprefix("ERROR_REASON_") for name in errors_pb2.ErrorReason.DESCRIPTOR.values_by_name}
    ours: list[type[ServiceError]] = [DeadlineExceeded]
    ours += [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, ServiceError)]
    assert {each.reason for each in ours} <= known


def test_codes_have_the_numbers_of_google_rpc() -> None:
    for code in grpc.StatusCode:
        assert code_pb2.Code.Value(code.name) == code.value[0]

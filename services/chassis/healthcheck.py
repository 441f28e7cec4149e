"""`python -m services.chassis.healthcheck ADDRESS`: ends with 0 when the service there is SERVING.

For container probes, which cannot speak mutual TLS themselves; it uses the same `PROCTOR_TLS_…` files as the service.
"""

from __future__ import annotations

import asyncio
import os
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.chassis.channel import Tls
from services.chassis.platform import PlatformSettings
from services.chassis.settings import load

TIMEOUT = 3.0


async def check(address: str, tls: Tls | None) -> str:
    """Return the status that the service tells, or the name of the RPC's failure."""
    channel = (
        grpc.aio.insecure_channel(address)
        if tls is None or address.startswith("unix:")
        else grpc.aio.secure_channel(address, tls.channel_credentials())
    )
    async with channel:
        try:
            reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT)
        except grpc.aio.AioRpcError as error:
            return error.code().name
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))


def main() -> None:
    """Check the address given as the only argument."""
    status = asyncio.run(check(sys.argv[1], load(PlatformSettings, "", os.environ).tls))
    sys.stdout.write(f"{status}\n")
    raise SystemExit(0 if status == "SERVING" else 1)


if __name__ == "__main__":
    main()

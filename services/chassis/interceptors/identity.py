"""Whose call it is: checks the bearer token of the metadata and makes its principal the current one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from services.chassis.errors import Unauthenticated
from services.chassis.identity import METADATA_KEY, IdentityVerifier, become
from services.chassis.interceptors.chain import Context, Method, Stream, Unary

SCHEME = "bearer "


class Identity:
    """Refuses calls without a valid service token.

    The principal stays set to the end of the call's task: resetting it in a generator's `finally` may happen in
    another context and would fail there.
    """

    def __init__(self, verifier: IdentityVerifier) -> None:
        self._verifier = verifier

    def unary(self, method: Method, proceed: Unary) -> Unary:
        async def serve(request: Any, context: Context) -> Any:
            self._identify(context)
            return await proceed(request, context)

        return serve

    def stream(self, method: Method, proceed: Stream) -> Stream:
        # Refused before there is a generator, as in Validation.
        def serve(request: Any, context: Context) -> AsyncGenerator[Any, None]:
            self._identify(context)
            return proceed(request, context)

        return serve

    def _identify(self, context: Context) -> None:
        for key, value in context.invocation_metadata() or ():
            if key == METADATA_KEY and isinstance(value, str) and value.lower().startswith(SCHEME):
                become(self._verifier.verify(value[len(SCHEME) :]))
                return
        raise Unauthenticated(f"the call carries no identity; send `{METADATA_KEY}: Bearer <service token>`")

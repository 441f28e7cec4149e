"""`/confirm/{token}`: the page behind a signed link in a message. Opening it decides nothing; its buttons do, once.

The token is the credential, so no key is asked for; the page works without scripts.
"""

from __future__ import annotations

import json
from html import escape
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from proctor.approval.v1 import approval_service_pb2 as pb
from services.chassis.identity import Principal
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.dependencies import Metadata, Parts, PartsDep
from services.gateway.problems import BadInput
from services.gateway.protojson import embedded, timestamp_text

router = APIRouter(include_in_schema=False)

Token = Annotated[str, Path(min_length=1, max_length=1024)]
POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
# Whoever holds a link; the approval service acts for the link's addressee, never for this one.
BEARER = Principal(tenant="link", user="anonymous")
_STYLE = """
:root { color-scheme: light dark; font: 17px/1.5 system-ui, sans-serif; }
body { max-width: 40rem; margin: 3rem auto; padding: 0 1rem; }
pre { overflow-x: auto; padding: .8rem; border: 1px solid; border-radius: .5rem; }
textarea { width: 100%; box-sizing: border-box; font: inherit; min-height: 4rem; }
button { font: inherit; padding: .6rem 1.4rem; border-radius: .5rem; border: 1px solid; margin: 1rem .6rem 0 0; }
"""


@router.get("/confirm/{token}")
async def look(token: Token, request: Request, parts: PartsDep) -> HTMLResponse:
    """Show what the link is for."""
    reply = await _link(parts, request, token)
    return _page(_question(reply) if reply.approval.state == pb.APPROVAL_STATE_PENDING else _settled(reply.approval))


@router.post("/confirm/{token}")
async def decide(token: Token, request: Request, parts: PartsDep) -> HTMLResponse:
    """Decide by the button that was pressed, for the arguments that were shown."""
    form = {name: values[-1] for name, values in parse_qs((await request.body()).decode("utf-8", "replace")).items()}
    decision = pb.DecideByLinkRequest(
        token=token, comment=form.get("comment", ""), arguments_digest=form.get("arguments_digest", "")
    )
    match form.get("verdict"):
        case "approve":
            decision.approve.SetInParent()
        case "deny":
            decision.deny.SetInParent()
        case _:
            raise BadInput("press one of the two buttons")
    reply = await parts.backends.approvals.DecideByLink(
        decision, metadata=_metadata(parts, request), timeout=UNARY_TIMEOUT
    )
    return _page(_settled(reply.approval))


async def _link(parts: Parts, request: Request, token: str) -> pb.GetLinkResponse:
    return await parts.backends.approvals.GetLink(
        pb.GetLinkRequest(token=token), metadata=_metadata(parts, request), timeout=UNARY_TIMEOUT
    )


def _metadata(parts: Parts, request: Request) -> Metadata:
    """Return call metadata; links are counted by address, so that nobody tries tokens out."""
    parts.limiter.take(f"link {request.client.host if request.client else ''}")
    return parts.signer.metadata(BEARER)


def _question(reply: pb.GetLinkResponse) -> str:
    approval = reply.approval
    arguments = json.dumps(embedded(approval.arguments_json), indent=2, ensure_ascii=False)
    return (
        f"<h1>May <code>{escape(approval.tool)}</code> run?</h1>"
        f"<p>{escape(approval.reason)}</p><pre>{escape(arguments)}</pre>"
        f"<p>Asked by {escape(approval.requested_by)}; you decide as {escape(reply.decider)}, until "
        f"{escape(timestamp_text(approval.deadline))}.</p>"
        f"<form method='post'><input type='hidden' name='arguments_digest' value='{escape(approval.arguments_digest)}'>"
        f"<label>Comment<br><textarea name='comment' maxlength='4096'></textarea></label><br>"
        f"<button name='verdict' value='approve'>Allow once</button>"
        f"<button name='verdict' value='deny'>Deny</button></form>"
    )


def _settled(approval: pb.Approval) -> str:
    state = pb.ApprovalState.Name(approval.state).removeprefix("APPROVAL_STATE_").lower()
    by = f" by {escape(approval.decided_by)}" if approval.decided_by else ""
    return f"<h1><code>{escape(approval.tool)}</code>: {state}{by}</h1><p>There is nothing left to decide.</p>"


def _page(body: str) -> HTMLResponse:
    return HTMLResponse(
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>Proctor asks</title><style>{_STYLE}</style>{body}</html>",
        headers=HEADERS,
    )

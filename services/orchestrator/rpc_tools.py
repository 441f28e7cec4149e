"""ToolService: the tools that agents may have, and the servers they come from."""

from __future__ import annotations

from typing import Any

import grpc

from proctor.orchestrator.v1 import tool_service_pb2 as pb
from proctor.orchestrator.v1 import tool_service_pb2_grpc
from services.chassis.errors import InvalidRequest
from services.chassis.identity import current_principal
from services.chassis.paging import decode_token, encode_token
from services.orchestrator.mcp.naming import SEPARATOR
from services.orchestrator.mcp.ports import Link
from services.orchestrator.mcp.servers import McpServers, ServerState
from services.orchestrator.tools.ports import Consent, Effect, Toolbox, ToolDefinition

DEFAULT_PAGE = 100
_SCOPE = "tools"
Context = grpc.aio.ServicerContext[Any, Any]
_CONSENTS = {
    Consent.ALLOW: pb.TOOL_CONSENT_ALLOW,
    Consent.ASK: pb.TOOL_CONSENT_ASK,
    Consent.ASK_EVERY_CALL: pb.TOOL_CONSENT_ASK_EVERY_CALL,
}
_LINKS = {
    Link.IDLE: pb.TOOL_SERVER_STATE_IDLE,
    Link.CONNECTED: pb.TOOL_SERVER_STATE_CONNECTED,
    Link.BROKEN: pb.TOOL_SERVER_STATE_BROKEN,
}


class ToolServicer(tool_service_pb2_grpc.ToolServiceServicer):
    """Tools that a principal's runs may be offered."""

    def __init__(self, toolbox: Toolbox, servers: McpServers) -> None:
        self._toolbox = toolbox
        self._servers = servers

    async def ListTools(self, request: pb.ListToolsRequest, context: Context) -> pb.ListToolsResponse:
        principal = current_principal()
        provided = [await provider.tools(principal, ()) for provider in self._toolbox.providers]
        everything = [*self._toolbox.tools, *(tool for each in provided for tool in each.tools)]
        definitions = sorted((tool.definition for tool in everything), key=lambda each: each.name)
        start = decode_token(_SCOPE, request.page_token)[0] if request.page_token else 0
        if not isinstance(start, int):
            raise InvalidRequest("the page token is not one of this list; begin at the first page")
        end = start + (request.page_size or DEFAULT_PAGE)
        token = encode_token(_SCOPE, end) if end < len(definitions) else ""
        return pb.ListToolsResponse(tools=[_tool(each) for each in definitions[start:end]], next_page_token=token)

    async def ListToolServers(self, request: pb.ListToolServersRequest, context: Context) -> pb.ListToolServersResponse:
        states = await self._servers.states(current_principal().tenant, connect=request.connect)
        return pb.ListToolServersResponse(servers=[_server(state) for state in states])


def _tool(definition: ToolDefinition) -> pb.Tool:
    return pb.Tool(
        name=definition.name,
        title=definition.title,
        description=definition.spec.description,
        parameters_json=definition.spec.parameters_json,
        consent=_CONSENTS[definition.consent],
        server=definition.name.partition(SEPARATOR)[0] if definition.foreign and SEPARATOR in definition.name else "",
        reads_only=definition.effect is Effect.READ,
    )


def _server(state: ServerState) -> pb.ToolServer:
    listing = state.listing
    return pb.ToolServer(
        name=state.name,
        transport="stdio" if state.is_local else "http",
        state=_LINKS[state.link],
        problem=state.problem,
        server_name=listing.server if listing else "",
        server_version=listing.version if listing else "",
        protocol_version=listing.protocol if listing else "",
        tools=state.tools,
        withheld=[pb.WithheldTool(name=name, reason=reason) for name, reason in state.left_out],
    )

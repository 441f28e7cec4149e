"""The HTTP application: routers, failures, and what wraps every exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Scope

from services.chassis.telemetry import Telemetry
from services.gateway import docs, openai_errors, openapi, pages, problems
from services.gateway.dependencies import Parts
from services.gateway.express import Express
from services.gateway.middleware import BodyLimit, Envelope
from services.gateway.problems import Problem
from services.gateway.routes import (
    ag_ui,
    agents,
    approvals,
    artifacts,
    chat,
    confirm,
    conversations,
    health,
    keys,
    me,
    memories,
    models,
    own_models,
    prompts,
    responses,
    rules,
    runs,
    sites,
    sources,
    tools,
    ui,
    usage,
    ws,
)
from services.gateway.settings import Settings
from services.gateway.tracing import Traced

# Where a model's words are waited for.
EXPRESS = [
    route
    for module in (chat, responses, runs)
    for route in module.router.routes
    if isinstance(route, APIRoute)
    and route.endpoint in {chat.create_completion, responses.create_response, runs.start_run}
]
DESCRIPTION = "Agents that answer from your documents, cite what they read, and ask before they act."


def create_app(parts: Parts, version: str) -> FastAPI:
    """Return the application over the gateway's parts: its routes, and how it tells failures."""
    app = FastAPI(title="Proctor", version=version, description=DESCRIPTION, docs_url=None, redoc_url=None)
    app.state.parts = parts
    app.state.failed = problems.install(app, _failure)
    openapi.install(app)
    for module in (
        # What is asked most often is looked for first.
        runs,
        chat,
        responses,
        conversations,
        approvals,
        rules,
        sources,
        sites,
        artifacts,
        agents,
        prompts,
        # Before the route that takes whatever follows /v1/models/ for an id.
        own_models,
        models,
        tools,
        usage,
        memories,
        ui,
        ag_ui,
        keys,
        me,
        ws,
        confirm,
        health,
        docs,
    ):
        app.include_router(module.router)
    app.include_router(pages.router())
    return app


def enclosed(app: FastAPI, parts: Parts, telemetry: Telemetry, express: Sequence[APIRoute] = EXPRESS) -> ASGIApp:
    """Return the application with what every exchange gets, and the short way to the routes of `express`."""
    handler: ASGIApp = Express(app, parts, app.state.failed, express)
    if parts.settings.cors_origins:
        handler = CORSMiddleware(
            handler,
            allow_origins=list(parts.settings.cors_origins),
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Api-Key"],
            expose_headers=["Proctor-Identity", "RateLimit", "RateLimit-Policy", "Retry-After", "X-Request-Id"],
        )
    handler = BodyLimit(handler, limit=body_limit(parts.settings))
    handler = Envelope(handler, ids=parts.ids)
    return Traced(handler, telemetry=telemetry, clock=parts.clock)


def _failure(problem: Problem, request: Request) -> Response:
    """Return the failure in the form that the path's clients read."""
    if openai_errors.speaks_openai(request.url.path):
        return openai_errors.respond(problem)
    return problems.respond(problem, request)


def body_limit(settings: Settings) -> Callable[[Scope], int]:
    """Return the function that says how large the body of a request may be: uploads more than JSON."""

    def limit(scope: Scope) -> int:
        path: str = scope["path"]
        is_upload = path == "/v1/attachments" or (path.startswith("/v1/sources/") and path.endswith("/documents"))
        return settings.max_upload if is_upload else settings.max_body

    return limit

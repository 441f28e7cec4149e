"""`proctor models`: the catalogue, and models of one's own."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from services.cli.gateway import GatewayError, open_gateway
from services.cli.show import plain

models = typer.Typer(no_args_is_help=True, help="See models, and keep your own.")
console = Console()


@models.command("list")
def list_models() -> None:
    """List the models you may use: the operator's, then your own."""
    table = Table(Column("model", no_wrap=True), "name", "window", "can", "of", "description", box=None)
    table.header_style = "bold"
    for entry in open_gateway().request("GET", "/v1/models")["data"]:
        model = entry["proctor"]
        if "window" in model:  # the others are agents
            _add_model(table, model)
    console.print(table)


@models.command("add")
def add_model(
    name: Annotated[str, typer.Argument(help="Name for people.")],
    url: Annotated[str, typer.Argument(help="Root of the endpoint, for example https://models.example.org/v1.")],
    upstream: Annotated[str, typer.Option(help="Name sent to the endpoint; else NAME.")] = "",
    api: Annotated[str, typer.Option(help="chat or responses")] = "chat",
    window: Annotated[int, typer.Option(help="Context window in tokens; 0 when unknown.", min=0)] = 0,
    can: Annotated[list[str] | None, typer.Option(help="tools, vision, json_schema, …; may be repeated.")] = None,
    key_env: Annotated[str, typer.Option(help="Variable that holds the key; else it is asked for.")] = "",
) -> None:
    """Keep a model of your own. The key is read from a variable or asked for, never from the command line."""
    key = os.environ.get(key_env, "") if key_env else typer.prompt("Key of the endpoint", hide_input=True, default="")
    if key_env and not key:
        raise GatewayError(f"the variable {key_env} is empty; set it to the key of {url}")
    body = {"name": name, "base_url": url, "upstream_name": upstream, "api": api, "window": window, "api_key": key}
    if can:
        body["capabilities"] = can
    made = open_gateway().request("POST", "/v1/models/own", json=body)
    console.print(f"[dim]{escape(plain(made['name']))} is kept; name it by[/]", highlight=False)
    console.print(made["model_id"], markup=False, highlight=False)


@models.command("delete")
def delete_model(model_id: Annotated[str, typer.Argument(help="Id of a model of your own.")]) -> None:
    """Forget a model of your own and its key."""
    open_gateway().request("DELETE", f"/v1/models/own/{model_id}")
    console.print("deleted")


def _add_model(table: Table, model: dict[str, Any]) -> None:
    window = f"{model['window']:,}" if model["window"] else "?"
    name = model["name"] or model["upstream_name"]
    owner = "you" if model["own"] else model["owner"]
    texts = (model["model_id"], name, window, " ".join(model["capabilities"]), owner, model["description"])
    table.add_row(*(escape(plain(text)) for text in texts))

"""Settings of the orchestrator: `PROCTOR_ORCHESTRATOR_<FIELD>`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from services.chassis.settings import Secret
from services.orchestrator.models.own.vault import MIN_SECRET


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where it listens, what it keeps, whom it calls, and its bounds. Durations in seconds in the environment."""

    listen: str = "127.0.0.1:9101"
    data_dir: Path = Path(".proctor")
    # Empty: an SQLite file in data_dir.
    database_url: Secret = Secret("")
    # Agents and models of the operator; a missing file is an empty one.
    config_file: Path = Path("proctor.toml")

    # Seals the keys of users' own models, 32 characters or more; every replica needs the same one.
    # Empty: a secret is made in data_dir/models.key, which serves one replica.
    models_secret: Secret = Secret("")
    # Networks, beside the public ones, that users' own models may be in, such as 10.1.0.0/16.
    model_networks: tuple[str, ...] = ()
    # The same for the tool http_request, which sends the requests of workflows.
    http_networks: tuple[str, ...] = ()

    retrieval_target: str = "127.0.0.1:9102"
    sandbox_target: str = "127.0.0.1:9103"
    approval_target: str = "127.0.0.1:9104"
    # Longest a search may take, and the time one heartbeat comes after another on a silent stream.
    retrieval_timeout: timedelta = timedelta(seconds=20)
    heartbeat: timedelta = timedelta(seconds=10)

    # Runs at once of all and of one tenant; those that may wait beyond that.
    max_runs: int = 512
    max_runs_per_tenant: int = 384
    max_waiting: int = 512
    # Owners that may die of one run before it is failed.
    max_attempts: int = 5
    # How long a run stays with a replica that has stopped telling that it lives.
    lease: timedelta = timedelta(seconds=10)
    # How often parked and orphaned runs are looked at when nothing hints at them.
    parked_every: timedelta = timedelta(seconds=2)
    orphans_every: timedelta = timedelta(seconds=1)

    # Caps of a run when neither agent nor request sets them.
    rounds: int = 25
    tool_calls: int = 40
    tokens: int = 200_000
    wall_time: timedelta = timedelta(minutes=30)
    # The same for research agents; at these they answer from what they have found.
    research_tokens: int = 100_000
    research_wall_time: timedelta = timedelta(seconds=300)
    # Tools of one round that run side by side.
    parallel_calls: int = 8
    # Most of one tool result that a model reads; less when the model's window is small.
    result_characters: int = 32_000
    # Tools offered at most; beyond that they are narrowed by relevance to the question.
    max_tools: int = 128

    # How long a router's scores may take; after that the agent answers.
    route_timeout: timedelta = timedelta(seconds=3)
    # Below this score for `topic` a question is off the subject.
    route_off_topic_below: float = 0.10
    # From this score for `small_talk`, with `topic` below the next, it is small talk.
    route_small_talk_from: float = 0.80
    route_small_talk_topic_below: float = 0.20
    # From this score the hint of a label is given, that of `calculation` among them.
    route_hint_from: float = 0.60

    # Tenants whose MCP servers are listed at the start; those of others are when their first run wants tools.
    mcp_tenants: tuple[str, ...] = ("local",)

    # How long files of runs are kept, and the largest one.
    artifact_lifetime: timedelta = timedelta(days=30)
    artifact_bytes: int = 64 * 1024 * 1024
    # How long the events of ended runs are kept, and the runs themselves.
    events_lifetime: timedelta = timedelta(days=30)
    runs_lifetime: timedelta = timedelta(days=90)
    # How long what was used is remembered, by day; quotas need a day of it.
    usage_lifetime: timedelta = timedelta(days=400)

    def __post_init__(self) -> None:
        if self.models_secret and len(self.models_secret) < MIN_SECRET:
            raise ValueError(f"MODELS_SECRET: needs {MIN_SECRET} characters or more, as `openssl rand -hex 32` makes")
        for name in ("off_topic_below", "small_talk_from", "small_talk_topic_below", "hint_from"):
            if not 0.0 <= (score := getattr(self, f"route_{name}")) <= 1.0:
                raise ValueError(f"ROUTE_{name.upper()}: a score lies between 0 and 1, {score:g} does not")
        for field in ("model_networks", "http_networks"):
            for network in getattr(self, field):
                try:
                    ipaddress.ip_network(network)
                except ValueError as error:
                    raise ValueError(f"{field.upper()}: {error}") from error

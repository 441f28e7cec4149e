"""The approval service's settings: `PROCTOR_APPROVAL_<FIELD>`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from services.approval.policy import Operator, Unattended
from services.chassis.settings import Secret

MIN_SECRET = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Lists of tools hold names, or prefixes with `*`; durations are seconds."""

    listen: str = "127.0.0.1:9104"
    data_dir: Path = Path(".proctor")
    # Empty: an SQLite file in `data_dir`.
    database_url: Secret = Secret("")

    # Tools that run without asking, are asked for at each call, never run, need two people. The strictest word wins.
    auto_approve: tuple[str, ...] = ()
    always_ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    four_eyes: tuple[str, ...] = ()
    # What becomes of requests of runs that nobody watches: `park`, or `deny`.
    unattended: Unattended = Unattended.PARK
    # How long a request waits when nobody says otherwise, and the longest anybody may ask for.
    default_timeout: timedelta = timedelta(minutes=2)
    max_timeout: timedelta = timedelta(days=30)
    # Deadlines of single tools: `run_code=86400,mail/send=3600`.
    deadlines: tuple[str, ...] = ()

    # How long a lapsed record may stand as pending in the table; whoever reads it sees it expired at once.
    sweep_interval: timedelta = timedelta(seconds=1)
    # How soon a change made by another process on the same SQLite file, or during a broken LISTEN, is seen.
    poll_interval: timedelta = timedelta(milliseconds=500)
    # Silence after which a watcher is sent an empty message.
    keep_alive: timedelta = timedelta(seconds=15)
    # Changes that one watcher may lag behind before its watch ends.
    watch_capacity: int = 10_000
    # How long changes are kept after the audit log and the webhooks have taken them up.
    change_retention: timedelta = timedelta(days=1)

    # Where to tell about requests and decisions; empty is nowhere.
    webhook_urls: tuple[str, ...] = ()
    # Signs webhooks and links; the receivers know it.
    webhook_secret: Secret = Secret("")
    # Where the gateway confirms, such as `https://proctor.example/confirm/`; a token follows it. Empty: no links.
    link_base: str = ""
    # How long a receiver may take, and how often one delivery is tried.
    webhook_timeout: timedelta = timedelta(seconds=10)
    webhook_attempts: int = 12

    def __post_init__(self) -> None:
        self.tool_deadlines()
        for url in (*self.webhook_urls, *((self.link_base,) if self.link_base else ())):
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ValueError(f"WEBHOOK_URLS and LINK_BASE: {url!r} is not an http or https URL")
        if self.webhook_urls and len(self.webhook_secret) < MIN_SECRET:
            raise ValueError(f"WEBHOOK_SECRET: webhooks need one of at least {MIN_SECRET} characters")
        if self.default_timeout <= timedelta() or self.max_timeout < self.default_timeout:
            raise ValueError("DEFAULT_TIMEOUT must be positive and not longer than MAX_TIMEOUT")

    def tool_deadlines(self) -> dict[str, timedelta]:
        """Return the deadlines of single tools; raise ValueError for an entry that is not `tool=seconds`."""
        deadlines: dict[str, timedelta] = {}
        for entry in self.deadlines:
            tool, equals, seconds = entry.rpartition("=")
            if not equals or not tool or not seconds.isdecimal() or int(seconds) == 0:
                raise ValueError(f"DEADLINES: {entry!r} is not tool=seconds")
            deadlines[tool] = timedelta(seconds=int(seconds))
        return deadlines

    def operator(self) -> Operator:
        """Return the operator's policy."""
        return Operator(
            auto_approve=self.auto_approve,
            always_ask=self.always_ask,
            deny=self.deny,
            four_eyes=self.four_eyes,
            unattended=self.unattended,
            default_timeout=self.default_timeout,
            max_timeout=self.max_timeout,
            deadlines=self.tool_deadlines(),
        )

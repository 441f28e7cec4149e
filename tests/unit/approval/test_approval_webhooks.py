"""Signatures, links, settings: what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from services.approval.errors import LinkInvalid
from services.approval.links import Link, LinkSigner
from services.approval.settings import Settings
from services.approval.webhooks import sign, verify
from services.chassis.errors import NotConfigured
from services.chassis.settings import Secret, SettingsError, load
from tests.support.clock import START

SECRET = "a-secret-that-is-long-enough-to-be-one"
LINK = Link(tenant="acme", approval_id="a/1 é", addressee="hooks.acme.example")


def test_a_signature_holds_for_its_body_its_secret_and_five_minutes() -> None:
    header = sign(SECRET, START, b"body")
    assert verify(SECRET, header, b"body", START + timedelta(minutes=5))
    assert not verify(SECRET, header, b"Body", START)
    assert not verify("another", header, b"body", START)
    assert not verify(SECRET, header, b"body", START + timedelta(minutes=5, seconds=1))
    assert not verify(SECRET, header.replace("t=18", "t=19"), b"body", START)


@pytest.mark.parametrize("header", ["", "t=,v1=", "nonsense", "v1=00", "t=-5,v1=00", "t=1893499200"])
def test_a_malformed_signature_is_no_signature(header: str) -> None:
    assert not verify(SECRET, header, b"body", START)


def test_a_link_survives_its_token() -> None:
    signer = LinkSigner(SECRET)
    assert signer.read(signer.token(LINK)) == LINK
    assert "a/1" not in signer.token(LINK)


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token[:-4],
        lambda token: "x" + token,
        lambda token: token + ".more",
        lambda token: token.replace(".", ""),
        lambda token: token.split(".")[0] + "." + "A" * 43,
        lambda token: "é" + token,
        lambda _: "",
        lambda _: ".",
    ],
)
def test_a_changed_token_is_refused(change: Any) -> None:
    signer = LinkSigner(SECRET)
    with pytest.raises(LinkInvalid):
        signer.read(change(signer.token(LINK)))


def test_a_webhook_signature_is_never_a_links() -> None:
    signer = LinkSigner(SECRET)
    payload = signer.token(LINK).split(".")[0]
    mac = sign(SECRET, START, payload.encode()).rpartition("=")[2]
    with pytest.raises(LinkInvalid):
        signer.read(f"{payload}.{mac}")


def test_without_a_secret_there_are_no_links() -> None:
    with pytest.raises(NotConfigured):
        LinkSigner("").token(LINK)


def test_settings_come_from_the_environment() -> None:
    settings = load(
        Settings,
        "approval",
        {
            "PROCTOR_APPROVAL_AUTO_APPROVE": "search, mail/*",
            "PROCTOR_APPROVAL_DEADLINES": "run_code=86400,mail/send=60",
            "PROCTOR_APPROVAL_UNATTENDED": "deny",
            "PROCTOR_APPROVAL_DEFAULT_TIMEOUT": "90",
        },
    )
    operator = settings.operator()
    assert operator.auto_approve == ("search", "mail/*")
    assert operator.timeout("run_code", None) == timedelta(days=1)
    assert operator.timeout("other", None) == timedelta(seconds=90)


@pytest.mark.parametrize(
    "environ",
    [
        {"WEBHOOK_URLS": "ftp://acme.example", "WEBHOOK_SECRET": SECRET},
        {"WEBHOOK_URLS": "https://acme.example"},
        {"LINK_BASE": "/links"},
        {"DEADLINES": "run_code"},
        {"DEADLINES": "run_code=soon"},
        {"DEADLINES": "run_code=0"},
        {"UNATTENDED": "approve"},
        {"DEFAULT_TIMEOUT": "0"},
        {"MAX_TIMEOUT": "1"},
    ],
)
def test_settings_that_cannot_hold_are_refused(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        load(Settings, "approval", {f"PROCTOR_APPROVAL_{name}": value for name, value in environ.items()})


def test_the_secret_never_shows() -> None:
    assert SECRET not in repr(Settings(webhook_secret=Secret(SECRET)))

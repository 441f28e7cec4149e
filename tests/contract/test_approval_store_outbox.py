"""Webhook deliveries on SQLite and PostgreSQL: durable, each claimed by one, tried again with growing delays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from services.approval.domain import Approve, Gate, RuleScope
from services.approval.errors import ApprovalDecided, LinkInvalid, NotEntitled
from services.approval.links import Links, LinkSigner
from services.approval.ports import Courier, DeliveryFailed
from services.approval.webhooks import LEASE, Webhooks, WebhookTargets, verify
from tests.support.approvals import ANN, BOB, Desk, asked, desk_over, open_desk, prepared_url

SECRET = "a-secret-that-is-long-enough-to-be-one"
URL = "https://hooks.acme.example/proctor"
BASE = "https://proctor.acme.example/links/"


@dataclass
class Endpoint:
    """A courier that remembers, and fails as long as it is told to."""

    failures: int = 0
    final: bool = False
    got: list[tuple[bytes, dict[str, str]]] = field(default_factory=list)

    async def post(self, endpoint: str, body: bytes, headers: dict[str, str]) -> None:
        if self.failures:
            self.failures -= 1
            raise DeliveryFailed("the endpoint answered 503", final=self.final)
        self.got.append((body, headers))

    @property
    def events(self) -> list[str]:
        return [json.loads(body)["type"] for body, _ in self.got]


def webhooks_of(desk: Desk, endpoint: Courier, attempts: int = 12) -> Webhooks:
    targets = WebhookTargets(urls=(URL,), secret=SECRET, link_base=BASE, attempts=attempts)
    return Webhooks(desk.outbox, endpoint, LinkSigner(SECRET), targets, desk.clock, lambda: 1.0)


@pytest.fixture(params=["sqlite", "postgres"])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    async with open_desk(await prepared_url(request)) as opened:
        await opened.outbox.open()
        yield opened


async def test_requests_and_decisions_are_told_once_each_and_signed(desk: Desk) -> None:
    endpoint = Endpoint()
    webhooks = webhooks_of(desk, endpoint)
    await desk.requests.request(ANN, asked("a1", reason="to tell them"))
    await webhooks.enqueue()
    await desk.decisions.decide(BOB, "a1", Approve(remember=RuleScope.ALWAYS))
    await webhooks.enqueue()
    assert await webhooks.send_due() == 2
    assert await webhooks.send_due() == 0
    assert sorted(endpoint.events) == ["approval.approved", "approval.requested"]
    for body, headers in endpoint.got:
        assert verify(SECRET, headers["Proctor-Signature"], body, desk.clock.now())
        assert headers["Proctor-Delivery"] == json.loads(body)["id"]


async def test_what_is_told_holds_no_arguments(desk: Desk) -> None:
    endpoint = Endpoint()
    webhooks = webhooks_of(desk, endpoint)
    await desk.requests.request(ANN, asked("a1", arguments=b'{"to":"top-secret"}'))
    await webhooks.enqueue()
    await webhooks.send_due()
    assert b"top-secret" not in endpoint.got[0][0]


async def test_a_failed_delivery_is_tried_again_later_each_time(desk: Desk) -> None:
    endpoint = Endpoint(failures=3)
    webhooks = webhooks_of(desk, endpoint)
    await desk.requests.request(ANN, asked("a1", timeout=timedelta(days=1)))
    await webhooks.enqueue()
    waits = []
    for _ in range(4):
        assert await webhooks.send_due() == 1
        waited = 0
        while not endpoint.got and not await desk.outbox.claim(desk.clock.now(), desk.clock.now(), 1):
            desk.clock.advance(1)
            waited += 1
        waits.append(waited)
    assert waits == [5, 10, 20, 0]
    assert len(endpoint.got) == 1


@pytest.mark.parametrize(("attempts", "final", "tries"), [(3, False, 3), (12, True, 1)])
async def test_a_delivery_is_given_up_after_the_last_attempt_or_when_the_endpoint_is_gone(
    desk: Desk, attempts: int, final: bool, tries: int
) -> None:
    webhooks = webhooks_of(desk, Endpoint(failures=99, final=final), attempts)
    await desk.requests.request(ANN, asked("a1"))
    await webhooks.enqueue()
    total = 0
    for _ in range(6):
        total += await webhooks.send_due()
        desk.clock.advance(3600)
    assert total == tries


async def test_what_a_dead_replica_had_claimed_goes_to_another_after_its_lease(desk: Desk) -> None:
    endpoint = Endpoint()
    await desk.requests.request(ANN, asked("a1"))
    await webhooks_of(desk, endpoint).enqueue()
    now = desk.clock.now()
    assert len(await desk.outbox.claim(now, now + LEASE, 10)) == 1
    successor = webhooks_of(desk_over(desk.engine, desk.clock), endpoint)
    assert await successor.send_due() == 0
    desk.clock.advance(LEASE.total_seconds())
    assert await successor.send_due() == 1
    assert endpoint.events == ["approval.requested"]


async def test_replicas_enqueue_and_send_each_delivery_once(desk: Desk) -> None:
    endpoint = Endpoint()
    replicas = [webhooks_of(desk_over(desk.engine, desk.clock), endpoint) for _ in range(3)]
    for number in range(10):
        await desk.requests.request(ANN, asked(f"a{number}"))
    await asyncio.gather(*(replica.enqueue() for replica in replicas))
    await asyncio.gather(*(replica.send_due() for replica in replicas))
    assert len(endpoint.got) == 10
    assert len({headers["Proctor-Delivery"] for _, headers in endpoint.got}) == 10


async def test_webhooks_begin_with_what_happens_after_they_are_switched_on(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1"))
    await desk.outbox.open()
    assert await webhooks_of(desk, Endpoint()).enqueue() == 1
    fresh = desk_over(desk.engine, desk.clock)
    await fresh.outbox.open()
    assert await webhooks_of(fresh, Endpoint()).enqueue() == 0


async def told_token(desk: Desk, approval_id: str) -> str:
    """Return the token of the link that the webhook about `approval_id` carried."""
    endpoint = Endpoint()
    webhooks = webhooks_of(desk, endpoint)
    await webhooks.enqueue()
    await webhooks.send_due()
    messages = [json.loads(body) for body, _ in endpoint.got]
    [link] = [message["link"] for message in messages if message["approval"]["id"] == approval_id]
    return str(link).removeprefix(BASE)


def links_of(desk: Desk) -> Links:
    return Links(LinkSigner(SECRET), desk.records, desk.decisions)


async def test_a_link_decides_once_in_its_addressees_name(desk: Desk) -> None:
    record = await desk.requests.request(ANN, asked("a1"))
    token = await told_token(desk, "a1")
    links = links_of(desk)
    shown, link = await links.look(token)
    assert (shown, link.decider) == (record, "link:hooks.acme.example")
    decided = await links.decide(token, Approve(), comment="ok", arguments_digest=record.arguments_digest)
    assert decided.approval.decided_by == "link:hooks.acme.example"
    with pytest.raises(ApprovalDecided):
        await links.decide(token, Approve(), comment="ok", arguments_digest=record.arguments_digest)
    assert (await links.look(token))[0].decided_by == "link:hooks.acme.example"


async def test_a_link_clicked_twice_at_once_decides_once(desk: Desk) -> None:
    record = await desk.requests.request(ANN, asked("a1"))
    token = await told_token(desk, "a1")
    links = links_of(desk)
    results = await asyncio.gather(
        *(links.decide(token, Approve(), comment="", arguments_digest=record.arguments_digest) for _ in range(5)),
        return_exceptions=True,
    )
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert sum(isinstance(result, ApprovalDecided) for result in results) == 4


@pytest.mark.parametrize("fields", [{"four_eyes": True}, {"gate": Gate.QUORUM, "quorum": 1}])
async def test_no_link_is_made_or_honoured_for_what_one_person_may_not_decide(
    desk: Desk, fields: dict[str, object]
) -> None:
    endpoint = Endpoint()
    webhooks = webhooks_of(desk, endpoint)
    await desk.requests.request(ANN, asked("a0", tool="other"))
    token = await told_token(desk, "a0")
    record = await desk.requests.request(ANN, asked("a1", **fields))
    await webhooks.enqueue()
    await webhooks.send_due()
    assert "link" not in json.loads(endpoint.got[0][0])
    link = LinkSigner(SECRET).read(token)
    forged = LinkSigner(SECRET).token(type(link)(tenant="acme", approval_id="a1", addressee="x"))
    with pytest.raises(NotEntitled):
        await links_of(desk).decide(forged, Approve(), comment="", arguments_digest=record.arguments_digest)


async def test_a_link_with_another_secret_is_refused(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1"))
    token = await told_token(desk, "a1")
    with pytest.raises(LinkInvalid):
        await Links(LinkSigner("another" * 8), desk.records, desk.decisions).look(token)

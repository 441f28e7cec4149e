"""A run that waited goes on as its own principal only while that one may: a key may be revoked, a quota used up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.platform import test_platform
from tests.support.suite import Suite, suite
from tests.support.suite_steps import of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import call, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUESTION = {"question_id": "city", "text": "Which city?", "type": "text"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream) -> AsyncIterator[Suite]:
    """What an answer needs; parked runs are looked at all the time."""
    async with suite(
        model=upstream.base_url,
        platform=test_platform(),
        services=("approval", "retrieval", "orchestrator"),
        PROCTOR_ORCHESTRATOR_PARKED_EVERY="0.05",
    ) as started:
        yield started


async def paused(running: Suite, upstream: Upstream, **headers: str) -> tuple[str, dict[str, Any]]:
    """Start a run that asks a question; return its id and what it waits for."""
    upstream.script(call("ask_user", json.dumps({"questions": [QUESTION], "reason": "to plan"})), say("Rome it is."))
    reply = await running.http.post(
        "/v1/runs", json={"input": "Plan a trip.", "hold": 0}, headers={"accept": "application/json", **headers}
    )
    run = reply.json()
    (pending,) = (await running.http.get(f"/v1/runs/{run['run_id']}", headers=headers)).json()["pending"]
    return run["run_id"], pending


async def test_a_run_of_a_revoked_key_ends_when_it_would_go_on(running: Suite, upstream: Upstream) -> None:
    made = (await running.http.post("/v1/keys", json={"name": "leaked", "scopes": ["*"]})).json()
    run_id, pending = await paused(running, upstream, Authorization=f"Bearer {made['key']}")
    assert (await running.http.delete(f"/v1/keys/{made['key_id']}")).status_code == 204
    # Its user has other credentials, and may look at the run and decide; it does not go on for that.
    refused = await running.http.post(f"/v1/runs/{run_id}/resume", json={"hold": 0, "text": "Rome"})
    assert (refused.status_code, refused.json()["reason"]) == (403, "KEY_REVOKED")
    answered = await running.http.post(
        f"/v1/approvals/{pending['approval_id']}/decision", json={"decision": "answer", "answers": {"city": "Rome"}}
    )
    assert answered.status_code == 200, answered.text
    events = await watch(running, run_id)
    assert events[-1]["kind"] == "run_failed"
    assert events[-1]["run_failed"]["reason"] == "KEY_REVOKED"
    assert made["key_id"] in events[-1]["run_failed"]["message"]
    assert len(upstream.requests) == 1
    assert not of(events, "run_resumed")


async def test_a_run_whose_quota_is_used_up_waits_and_its_decision_stands(running: Suite, upstream: Upstream) -> None:
    run_id, pending = await paused(running, upstream)
    assert (await running.http.put("/v1/quotas/tenant", json={"runs": 0})).status_code == 200
    try:
        decision = {"call_id": pending["call_id"], "answers": {"answers": {"city": "Rome"}}}
        body = {"hold": 0, "decisions": [decision]}
        for _ in range(2):  # the refusal uses no decision up
            refused = await running.http.post(f"/v1/runs/{run_id}/resume", json=body)
            assert (refused.status_code, refused.json()["reason"]) == (429, "QUOTA_EXCEEDED")
        decided = await running.http.post(
            f"/v1/approvals/{pending['approval_id']}/decision", json={"decision": "answer", "answers": {"city": "Rome"}}
        )
        assert decided.status_code == 200, decided.text
        assert (await running.http.get(f"/v1/runs/{run_id}")).json()["state"] == "RUN_STATE_PAUSED"
    finally:
        await running.http.delete("/v1/quotas/tenant")
    events = await watch(running, run_id)
    assert events[-1]["kind"] == "run_completed"
    assert len(upstream.requests) == 2

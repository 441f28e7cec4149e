"""Files of a message: text to every model, pictures to models that see, each file its owner's alone."""

from __future__ import annotations

import base64
import json

import pytest

from tests.support.suite import Suite
from tests.support.suite_steps import ask, of
from tests.support.upstream import Upstream
from tests.support.upstream_script import say

pytestmark = pytest.mark.asyncio(loop_scope="module")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def attach(running: Suite, name: str, content: bytes) -> str:
    reply = await running.http.post("/v1/attachments", files={"file": (name, content)})
    assert reply.status_code in (200, 201), reply.text
    return str(reply.json()["artifact_id"])


async def test_a_files_text_reaches_the_model_with_its_name(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("Four."))
    notes = await attach(running, "notes.md", b"# Minutes\n\nThe vote was four to three.")
    events = await ask(running, "How was the vote?", attachments=[notes])
    assert events[-1]["kind"] == "run_completed", events[-1]
    told = upstream.requests[-1].last_text
    assert told.startswith("How was the vote?")
    assert "[file notes.md]" in told
    assert "four to three" in told


async def test_a_picture_is_told_of_where_the_model_cannot_see(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("I cannot see it."))
    picture = await attach(running, "pixel.png", PIXEL)
    events = await ask(running, "What is this?", attachments=[picture])
    sent = json.dumps(upstream.requests[-1].messages)
    if "image_url" in sent:
        assert base64.b64encode(PIXEL).decode() in sent
    else:
        assert [notice["code"] for notice in of(events, "notice")] == ["media_not_seen"]


async def test_a_file_without_text_is_said_to_be_unreadable(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("Nothing to read."))
    blob = await attach(running, "blob.bin", bytes(range(256)) * 8)
    events = await ask(running, "What does it say?", attachments=[blob])
    assert [notice["code"] for notice in of(events, "notice")] == ["file_not_read"]


async def test_a_file_that_is_not_yours_does_not_exist(running: Suite) -> None:
    reply = await running.http.post("/v1/runs", json={"input": "See?", "attachments": ["0" * 32]})
    assert (reply.status_code, reply.json()["reason"]) == (404, "ARTIFACT_NOT_FOUND")

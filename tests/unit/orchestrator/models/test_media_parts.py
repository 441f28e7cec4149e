"""Pictures and files on their way to a model."""

from __future__ import annotations

from services.orchestrator.domain.messages import MediaPart, Message, Part, Role, TextPart, ToolCall
from services.orchestrator.models.media import InlineMedia, MediaAware
from services.orchestrator.models.ports import ModelNotice
from tests.support.upstream import Upstream
from tests.support.upstream_models import Heard, adapter, ask, converse, settings_for, user
from tests.support.upstream_script import Request, say

PICTURE = MediaPart(media_type="image/png", is_image=True, name="chart.png", inline=b"\x89PNG")
LINKED = MediaPart(media_type="image/jpeg", is_image=True, url="https://example.org/cat.jpg")
SEES = frozenset({"tools", "vision"})


class ScannedText(InlineMedia):
    """Finds the same text in every picture."""

    async def text(self, part: MediaPart, tenant: str) -> str:
        return f"a chart for {tenant}" if part.is_image else await super().text(part, tenant)


async def show(
    *parts: Part, capabilities: frozenset[str] = SEES, media: InlineMedia | None = None, **fields: tuple[Message, ...]
) -> tuple[Heard, Request]:
    messages = fields.get("messages", (Message(role=Role.USER, parts=parts),))
    async with Upstream(say("ok")) as upstream, adapter(upstream.base_url, capabilities=capabilities) as model:
        info = settings_for("http://x", capabilities=capabilities).info
        aware = MediaAware(model, info, media or InlineMedia())
        return await converse(aware, ask(messages=messages, tenant="acme")), upstream.requests[0]


async def test_a_model_that_sees_gets_pictures_as_parts_in_their_place() -> None:
    heard, request = await show(TextPart(text="Compare "), PICTURE, TextPart(text=" with "), LINKED)
    content = request.messages[0]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "text", "image_url"]
    assert content[3]["image_url"]["url"] == "https://example.org/cat.jpg"
    assert heard.of(ModelNotice) == []


async def test_a_model_that_does_not_see_gets_the_text_of_the_picture_and_a_notice() -> None:
    heard, request = await show(TextPart(text="What is this?"), PICTURE, capabilities=frozenset(), media=ScannedText())
    assert "a chart for acme" in request.last_text
    (notice,) = heard.of(ModelNotice)
    assert isinstance(notice, ModelNotice)
    assert notice.code == "media_not_seen"
    assert "cannot see a picture" in notice.text


async def test_a_picture_without_text_is_at_least_told_of() -> None:
    _, request = await show(TextPart(text="What is this?"), PICTURE, capabilities=frozenset())
    assert "[chart.png: a picture that cannot be read here]" in request.last_text


async def test_a_text_file_is_given_as_text_and_a_binary_one_is_told_of() -> None:
    notes = MediaPart(media_type="text/plain", is_image=False, name="notes.txt", inline="Grüße".encode())
    archive = MediaPart(media_type="application/zip", is_image=False, name="a.zip", inline=b"PK")
    heard, request = await show(TextPart(text="Read."), notes, archive)
    assert "[text of notes.txt]\nGrüße" in request.last_text
    assert "[a.zip: a file that cannot be read here]" in request.last_text
    assert heard.of(ModelNotice) == []


async def test_a_picture_in_a_tool_result_goes_back_as_a_picture_after_the_results() -> None:
    calls = (
        ToolCall(call_id="c1", name="plot", arguments_json=b"{}"),
        ToolCall(call_id="c2", name="plot", arguments_json=b"{}"),
    )
    messages = (
        user("Plot it"),
        Message(role=Role.ASSISTANT, tool_calls=calls),
        Message(role=Role.TOOL, parts=(TextPart(text="done"), PICTURE), tool_call_id="c1", tool_name="plot"),
        Message(role=Role.TOOL, parts=(PICTURE,), tool_call_id="c2", tool_name="plot"),
    )
    _, request = await show(messages=messages)
    assert [message["role"] for message in request.messages] == ["user", "assistant", "tool", "tool", "user"]
    assert request.messages[2]["content"] == "done"
    assert [part["type"] for part in request.messages[4]["content"]] == ["text", "image_url", "text", "image_url"]

"""Answers in a form: asked for, checked, mended once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.chassis.errors import InvalidRequest
from services.orchestrator.domain.messages import OutputFormat
from services.orchestrator.domain.run import OnRetraction
from services.orchestrator.models.errors import OutputInvalid
from services.orchestrator.models.model_settings import StructuredParameter
from services.orchestrator.models.ports import ModelReply, Retraction
from services.orchestrator.models.structured import Structured, check_schema, schema_problems
from tests.support.upstream import Upstream
from tests.support.upstream_models import SEARCH, Heard, adapter, ask, converse, settings_for
from tests.support.upstream_script import Request, Turn, call, say

SCHEMA = (
    b'{"additionalProperties":false,"properties":{"city":{"type":"string"},"days":{"minimum":1,"type":"integer"}},'
    b'"required":["city","days"],"type":"object"}'
)
BY_SCHEMA = OutputFormat(json_schema=SCHEMA, name="trip")
GOOD = '{"city": "Bergen", "days": 3}'


async def exchange(
    *turns: Turn,
    output: OutputFormat = BY_SCHEMA,
    capabilities: frozenset[str] = frozenset({"tools", "json_schema"}),
    heard: Heard | None = None,
    structured: StructuredParameter = StructuredParameter.RESPONSE_FORMAT,
    **fields: Any,
) -> tuple[Heard, list[Request]]:
    """Return what the checked model tells when the server says `turns`, and the requests."""
    async with (
        Upstream(*turns) as upstream,
        adapter(upstream.base_url, capabilities=capabilities, structured=structured) as model,
    ):
        checked = Structured(model, settings_for("http://x", capabilities=capabilities).info)
        return await converse(checked, ask(output=output, **fields)), upstream.requests


async def test_a_schema_goes_to_a_model_that_supports_it_and_the_value_comes_back_canonical() -> None:
    heard, requests = await exchange(say('{"days": 3,', ' "city": "Bergen"}'))
    wanted = requests[0].body["response_format"]
    assert wanted["type"] == "json_schema"
    assert wanted["json_schema"] == {"name": "trip", "schema": json.loads(SCHEMA), "strict": True}
    assert heard.reply.value_json == b'{"city":"Bergen","days":3}'


async def test_a_schema_with_open_objects_is_not_called_strict() -> None:
    loose = OutputFormat(json_schema=b'{"properties":{"city":{"type":"string"}},"type":"object"}')
    _, requests = await exchange(say(GOOD), output=loose)
    assert requests[0].body["response_format"]["json_schema"]["strict"] is False


async def test_the_catalogue_names_the_parameter() -> None:
    _, requests = await exchange(say(GOOD), structured=StructuredParameter.GUIDED_JSON)
    assert requests[0].body["guided_json"] == json.loads(SCHEMA)


async def test_json_mode_carries_the_schema_in_the_prompt_where_schemas_are_not_supported() -> None:
    heard, requests = await exchange(say(GOOD), capabilities=frozenset({"json_mode"}))
    assert requests[0].body["response_format"] == {"type": "json_object"}
    assert '"minimum":1' in requests[0].messages[0]["content"]
    assert heard.reply.value_json


async def test_a_model_that_supports_nothing_is_asked_in_words_and_its_fences_are_read() -> None:
    heard, requests = await exchange(say(f"Here you are:\n```json\n{GOOD}\n```"), capabilities=frozenset())
    assert "response_format" not in requests[0].body
    assert heard.reply.value_json == b'{"city":"Bergen","days":3}'


async def test_an_invalid_answer_is_withdrawn_and_asked_for_again_with_the_fault() -> None:
    heard, requests = await exchange(say('{"city": "Bergen", "days": 0}', usage=(10, 5, 0, 0)), say(GOOD))
    assert len(heard.of(Retraction)) == 1
    assert heard.reply.text == GOOD
    complaint = requests[1].messages[-1]["content"]
    assert "$.days" in complaint
    assert "minimum" in complaint
    assert requests[1].messages[-2] == {"role": "assistant", "content": '{"city": "Bergen", "days": 0}'}
    assert requests[1].body["response_format"] == requests[0].body["response_format"]
    assert heard.reply.usage.input_tokens == 22
    assert heard.reply.timing.attempts == 2


async def test_a_second_invalid_answer_is_a_failure_that_names_the_fault() -> None:
    with pytest.raises(OutputInvalid, match=r"'city' is a required property"):
        await exchange(say("no json"), say('{"days": 1}'))


async def test_nothing_is_shown_before_it_is_checked_where_nothing_may_be_withdrawn() -> None:
    heard, _ = await exchange(say("wrong"), say(GOOD), on_retraction=OnRetraction.FAIL)
    assert heard.text == GOOD
    assert heard.of(Retraction) == []


async def test_json_mode_takes_any_object_and_refuses_prose() -> None:
    heard, requests = await exchange(say("Sure!"), say('{"a": [1]}'), output=OutputFormat(json_mode=True))
    assert heard.reply.value_json == b'{"a":[1]}'
    assert len(requests) == 2


async def test_rounds_that_call_tools_are_not_checked() -> None:
    heard, _ = await exchange(call("search", '{"query": "x"}'), tools=(SEARCH,))
    assert heard.reply.tool_calls
    assert heard.reply.value_json == b""


async def test_big_integers_survive() -> None:
    heard, _ = await exchange(say('{"city": "x", "days": 123456789012345678901234567890}'))
    assert b"123456789012345678901234567890" in heard.reply.value_json


async def test_plain_text_passes_through() -> None:
    heard, _ = await exchange(say("{not json"), output=OutputFormat())
    assert isinstance(heard.events[-1], ModelReply)


@pytest.mark.parametrize("schema", [b"{", b"7", b'{"type": "nonsense"}'])
def test_what_is_no_schema_is_refused_with_its_field(schema: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_schema(schema)
    assert caught.value.violations[0].field == "output.json_schema"


def test_a_reference_to_the_network_is_never_followed() -> None:
    schema = b'{"$ref":"http://127.0.0.1:9/schema.json"}'
    assert "refers to what is not in it" in schema_problems(schema, {})[0]
    with pytest.raises(InvalidRequest):
        check_schema(schema)

"""The reader: no language model, but it answers from what it is given, and says so when it cannot."""

from __future__ import annotations

import json

import pytest

from services.chassis.clock import SystemClock
from services.orchestrator.domain.messages import (
    Evidence,
    EvidenceKind,
    Message,
    OutputFormat,
    Role,
    TextPart,
    ToolSpec,
)
from services.orchestrator.evidence import cited_numbers, render
from services.orchestrator.models.errors import ModelRefused
from services.orchestrator.models.passages import sentences, terms
from services.orchestrator.models.ports import ModelRequest, Purpose
from services.orchestrator.models.reader import Reader
from services.orchestrator.models.timing import CallClock
from services.orchestrator.outcomes import denied, expired
from tests.support.upstream_models import SEARCH, Heard, ask, hear, user

RUN_CODE = ToolSpec(name="run_code", description="Run Python.", parameters_json=b'{"type":"object"}')

TRAVEL = """## Mileage
The mileage rate is EUR 0.38 per kilometre for cars and EUR 0.21 per kilometre for motorcycles. Parking is paid
against receipts.

| City | Per diem | Hotel limit |
|---|---|---|
| London | 72 | 230 |
| Zurich | 86 | 240 |"""
LEAVE = "婚假 10 天，应在登记之日起 12 个月内一次休完。年假按工龄计算。"


def documents(*texts: str) -> str:
    """Return the texts as a model reads evidence."""
    return render(
        [
            Evidence(number=n, kind=EvidenceKind.PASSAGE, title=f"Document {n}", text=text, identity=str(n))
            for n, text in enumerate(texts, start=1)
        ]
    )


def result(tool: str, text: str) -> Message:
    return Message(role=Role.TOOL, parts=(TextPart(text=text),), tool_call_id="c1", tool_name=tool)


async def read(request: ModelRequest) -> Heard:
    return await hear(Reader().stream(request, CallClock(SystemClock())))


async def test_it_asks_for_search_with_the_question_and_a_reason() -> None:
    heard = await read(ask("What is the mileage rate?", tools=(SEARCH,)))
    (made,) = heard.reply.tool_calls
    assert (made.name, made.arguments_json) == ("search", b'{"query":"What is the mileage rate?"}')
    assert made.reason
    assert heard.reply.finish_reason == "tool_calls"
    assert json.loads(heard.fragments[made.call_id]) == {"query": "What is the mileage rate?"}


async def test_it_quotes_the_sentence_that_answers_with_its_number() -> None:
    found = result("search", documents(LEAVE, TRAVEL))
    heard = await read(ask(messages=(user("What is the mileage rate for cars?"), found), tools=(SEARCH,)))
    assert "EUR 0.38 per kilometre for cars" in heard.text
    assert "[2]" in heard.text
    assert cited_numbers(heard.text) == {2}
    assert "no language model" in heard.text
    assert heard.text == heard.reply.text


async def test_documents_in_the_user_s_turn_are_read_without_a_search() -> None:
    turn = Message(
        role=Role.USER, parts=(TextPart(text="婚假有几天?"), TextPart(text=f"\n\n{documents(TRAVEL, LEAVE)}"))
    )
    heard = await read(ask(messages=(turn,), tools=(SEARCH,)))
    assert "婚假 10 天" in heard.text
    assert cited_numbers(heard.text) == {2}
    assert "文档中写道" in heard.text


async def test_a_comparison_quotes_both_rows_with_the_names_of_their_columns() -> None:
    question = "Is the hotel limit higher in London or in Zurich?"
    heard = await read(ask(messages=(user(question), result("search", documents(TRAVEL)))))
    assert "City: London · Per diem: 72 · Hotel limit: 230 [1]" in heard.text
    assert "City: Zurich · Per diem: 86 · Hotel limit: 240 [1]" in heard.text


@pytest.mark.parametrize("question", ["What is the dress code for the summer party?", "公司食堂几点开门？"])
async def test_it_says_plainly_when_nothing_fits(question: str) -> None:
    heard = await read(ask(messages=(user(question), result("search", documents(TRAVEL, LEAVE))), tools=(SEARCH,)))
    assert heard.reply.tool_calls == ()
    assert cited_numbers(heard.text) == set()
    assert "found nothing" in heard.text or "没有找到" in heard.text


async def test_a_search_without_hits_is_not_repeated() -> None:
    empty = result("search", "The search found nothing that fits. Try other words.")
    heard = await read(ask(messages=(user("What is the dress code?"), empty), tools=(SEARCH,)))
    assert heard.reply.tool_calls == ()
    assert "found nothing" in heard.text


async def test_earlier_turns_are_not_taken_for_this_one() -> None:
    messages = (user("What is the mileage rate?"), result("search", documents(TRAVEL)), user("And the hotel limit?"))
    heard = await read(ask(messages=messages, tools=(SEARCH,)))
    assert [made.name for made in heard.reply.tool_calls] == ["search"]


async def test_with_nothing_to_read_it_introduces_itself() -> None:
    heard = await read(ask("hello"))
    assert "no language model" in heard.text


async def test_tools_that_may_not_be_used_are_not_called() -> None:
    heard = await read(ask("What is the mileage rate?", tools=(SEARCH,), tool_choice="none"))
    assert heard.reply.tool_calls == ()


@pytest.mark.parametrize("written", ["/python print(6 * 7)", "/python\n```python\nprint(6 * 7)\n```"])
async def test_the_command_asks_for_code_to_be_run(written: str) -> None:
    heard = await read(ask(written, tools=(SEARCH, RUN_CODE)))
    (made,) = heard.reply.tool_calls
    assert (made.name, json.loads(made.arguments_json)) == ("run_code", {"code": "print(6 * 7)"})
    assert made.reason


async def test_the_result_of_code_is_told_as_computation_without_a_number() -> None:
    ran = result("run_code", "Sandbox computation (not evidence, no citation number).\nstdout:\n42")
    heard = await read(ask(messages=(user("/python print(6 * 7)"), ran), tools=(RUN_CODE,)))
    assert "From sandbox computation" in heard.text
    assert "42" in heard.text
    assert cited_numbers(heard.text) == set()


@pytest.mark.parametrize("told", [denied("run_code", "not today"), expired("run_code")])
async def test_code_that_did_not_run_is_not_asked_for_again(told: str) -> None:
    heard = await read(ask(messages=(user("/python 1"), result("run_code", told)), tools=(RUN_CODE,)))
    assert heard.reply.tool_calls == ()
    assert "gave no result" in heard.text
    assert told[:30] in heard.text


async def test_without_the_tool_or_the_code_it_says_so() -> None:
    assert "no run_code tool" in (await read(ask("/python 1", tools=(SEARCH,)))).text
    assert "Write the code" in (await read(ask("/python", tools=(RUN_CODE,)))).text


@pytest.mark.parametrize("purpose", [Purpose.ROUTE, Purpose.PLAN, Purpose.COMPACT, Purpose.REWRITE])
async def test_what_only_a_language_model_can_do_is_refused(purpose: Purpose) -> None:
    with pytest.raises(ModelRefused, match="no language model"):
        await read(ask(purpose=purpose))


async def test_a_form_is_refused_and_a_title_is_the_question() -> None:
    with pytest.raises(ModelRefused, match="structured output"):
        await read(ask(output=OutputFormat(json_mode=True)))
    assert (await read(ask("How much?", purpose=Purpose.TITLE))).text == "How much?"


def test_terms_are_stems_and_bigrams_without_the_words_of_every_question() -> None:
    assert terms("What are the travelling expenses?") == {"travel", "expens"}
    assert terms("婚假有几天") == {"婚假"}


def test_sentences_keep_rows_and_join_wrapped_lines() -> None:
    assert sentences(TRAVEL)[:3] == [
        "Mileage",
        "The mileage rate is EUR 0.38 per kilometre for cars and EUR 0.21 per kilometre for motorcycles.",
        "Parking is paid against receipts.",
    ]
    assert "London | 72 | 230" in sentences(TRAVEL)


@pytest.mark.parametrize("greeting", ["Hello!", "Good morning", "你好", "thank you"])
async def test_a_greeting_is_no_question_to_search_for(greeting: str) -> None:
    heard = await read(ask(greeting, tools=(SEARCH,)))
    assert heard.reply.tool_calls == ()
    assert "reader" in heard.text


async def test_rows_told_by_their_columns_are_quoted_one_by_one() -> None:
    rows = "\n".join(
        f"City: {city}; Per diem (EUR per day): {rate}; Hotel limit (EUR per night): {limit}"
        for city, rate, limit in (("London", 72, 230), ("Zurich", 86, 240), ("Bergen", 78, 195))
    )
    heard = await read(ask(messages=(user("What is the hotel limit in Bergen?"), result("search", documents(rows)))))
    assert "> City: Bergen; Per diem (EUR per day): 78; Hotel limit (EUR per night): 195 [1]" in heard.text
    assert "London" not in heard.text


async def test_an_amount_finds_the_range_it_lies_in() -> None:
    low = "Amount: 500.01 to 5,000; Approved by: line manager"
    rows = f"{low}\nAmount: 5,000.01 to 25,000; Approved by: head of department"
    question = "Who approves a purchase of EUR 18,000?"
    heard = await read(ask(messages=(user(question), result("search", documents(rows)))))
    assert heard.text.index("head of department") < len(heard.text) // 2
    assert "line manager" not in heard.text.split("head of department")[0]


async def test_a_line_with_dots_between_its_parts_is_no_row_of_a_table() -> None:
    text = "Finance handbook FIN-03 · rates for 2026 · owner: Ingrid Solheim, Financial Controller"
    heard = await read(ask(messages=(user("Who is Ingrid Solheim?"), result("search", documents(text)))))
    assert "Financial Controller" in heard.text

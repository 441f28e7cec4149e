from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import httpx
import pytest
from rich.console import Console

from services.cli.ask import ask, decide, resumed
from services.cli.gateway import Gateway, GatewayError, parse_events
from services.cli.show import plain

Handler = Callable[[httpx.Request], httpx.Response]


def gateway(handler: Handler) -> Gateway:
    return Gateway("http://gateway", "k1", httpx.MockTransport(handler))


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(
        b"id: %d\nevent: x\ndata: %s\n\n" % (event["sequence"], json.dumps(event).encode()) for event in events
    )


def event(sequence: int, **body: Any) -> dict[str, Any]:
    return {"run_id": "r1", "sequence": sequence, **body}


DONE = {
    "run_completed": {
        "citations": [
            {"number": 1, "cited": True, "evidence": {"number": 1, "title": "Travel", "where": "Mileage"}},
            {"number": 2, "cited": False, "evidence": {"number": 2, "title": "Hotels", "where": ""}},
        ]
    }
}


class Broken(httpx.SyncByteStream):
    """A body that breaks off after its first bytes."""

    def __init__(self, first: bytes) -> None:
        self._first = first

    def __iter__(self) -> Iterator[bytes]:
        yield self._first
        raise httpx.ReadError("connection reset")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.cli.ask.time.sleep", lambda seconds: None)


def console() -> Console:
    return Console(file=StringIO(), width=200)


def text_of(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_events_are_read_whatever_their_fields() -> None:
    lines = [": hello", "", "id: 1", "event: a", "data: x", "data: y", "retry: 5", "", "data:z", ""]
    events = list(parse_events(iter(lines)))
    assert [(e.id, e.kind, e.data) for e in events] == [("1", "a", "x\ny"), ("", "message", "z")]


def test_a_question_is_answered_with_the_sources_it_cites() -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        deltas = [event(n, answer_delta={"text": text}) for n, text in enumerate(["EUR ", "0.38 [1]"], 1)]
        return httpx.Response(200, content=sse(*deltas, event(3, **DONE)))

    out = console()
    assert ask(gateway(answer), "How much?", out, None, model="m") == 0
    assert json.loads(sent[0].content) == {"input": "How much?", "model": "m"}
    assert sent[0].headers["authorization"] == "Bearer k1"
    assert "EUR 0.38 [1]" in text_of(out)
    assert "[1] Travel · Mileage" in text_of(out)
    assert "Hotels" not in text_of(out)


def test_a_broken_stream_is_taken_up_after_the_last_event() -> None:
    asked: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("last-event-id"))
        if request.method == "POST":
            return httpx.Response(
                200, stream=Broken(sse(event(1, notice={"text": "a"}), event(2, notice={"text": "b"})))
            )
        return httpx.Response(200, content=sse(event(3, **DONE)))

    client = gateway(answer)
    seen = list(resumed(client, client.stream("POST", "/v1/runs", json={})))
    assert [each["sequence"] for each in seen] == [1, 2, 3]
    assert asked == [None, "2"]


def test_a_gateway_that_stays_away_is_told_with_the_run() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(200, stream=Broken(sse(event(1, notice={"text": "a"}))))
        raise httpx.ConnectError("refused")

    client = gateway(answer)
    with pytest.raises(GatewayError, match="run r1 broke"):
        list(resumed(client, client.stream("POST", "/v1/runs", json={})))


def test_a_refusal_is_told_as_the_gateway_told_it() -> None:
    problem = {"detail": "there is no agent 'x'", "reason": "AGENT_NOT_FOUND"}
    client = gateway(lambda request: httpx.Response(404, json=problem))
    with pytest.raises(GatewayError, match="there is no agent 'x'") as caught:
        ask(client, "q", console(), None)
    assert (caught.value.reason, caught.value.status) == ("AGENT_NOT_FOUND", 404)


def test_an_unreachable_gateway_names_the_remedy() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(GatewayError, match="proctor up"):
        gateway(refuse).request("GET", "/v1/runs")


@pytest.mark.parametrize(("kind", "code"), [("run_failed", 1), ("run_cancelled", 130)])
def test_the_end_of_a_run_is_the_exit_code(kind: str, code: int) -> None:
    end = event(1, **{kind: {"message": "no model", "reason": "MODEL_UNREACHABLE"}})
    assert ask(gateway(lambda request: httpx.Response(200, content=sse(end))), "q", console(), None) == code


def test_an_approval_is_put_to_the_prompt() -> None:
    asked: list[str] = []
    request = event(1, approval_requested={"approval_id": "a1"})
    client = gateway(lambda _: httpx.Response(200, content=sse(request, event(2, **DONE))))
    ask(client, "q", console(), lambda requested: asked.append(requested["approval_id"]))
    assert asked == ["a1"]


def test_a_decision_that_came_too_late_is_told_and_not_raised() -> None:
    problem = {"detail": "bob denied it already", "reason": "APPROVAL_DECIDED"}
    out = console()
    decide(gateway(lambda _: httpx.Response(409, json=problem)), out, "a1", {"decision": "deny"})
    assert "bob denied it already" in text_of(out)


def test_every_page_of_a_list_is_read() -> None:
    pages = {"": ([1, 2], "t"), "t": ([3], "")}

    def answer(request: httpx.Request) -> httpx.Response:
        items, token = pages[request.url.params.get("page_token", "")]
        return httpx.Response(200, json={"runs": items, "next_page_token": token})

    assert list(gateway(answer).pages("/v1/runs", "runs")) == [1, 2, 3]


def test_what_a_model_writes_does_not_drive_the_terminal() -> None:
    assert plain("a\x1b[2Jb\x9b1m\tc\n") == "a[2Jb1m\tc\n"

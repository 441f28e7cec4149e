"""Guardrails in proctor.toml, what they do to what a user says, and the service behind one of them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from services.chassis.settings import Secret
from services.orchestrator.domain.messages import MediaPart, Message, Role, TextPart, text_message
from services.orchestrator.guardrails.config_file import GuardrailsInvalid, read_guardrails
from services.orchestrator.guardrails.guards import Guards
from services.orchestrator.guardrails.ports import Checked, FailMode, InputRefused, Refused, Stage, Verdict
from services.orchestrator.guardrails.service import Service, ServiceFailed

GOOD = """
[guardrails.private]
kind = "personal_data"
hide = ["email", "card"]
fail = "closed"

[guardrails.secrets]
kind = "patterns"
on = ["input"]
patterns = ["(?i)password is"]
message = "passwords do not belong here"
fail = "closed"
tenants = ["t1"]

[guardrails.remote]
kind = "service"
url = "http://10.0.0.1/judge"
key_env = "JUDGE_KEY"
timeout_seconds = 1.5
fail = "open"
"""


def read(tmp_path: Path, text: str, **environ: str) -> Guards:
    (tmp_path / "proctor.toml").write_text(text)
    return Guards(read_guardrails(tmp_path / "proctor.toml", environ))


async def test_guardrails_are_read_in_order_and_hold_where_they_are_meant(tmp_path: Path) -> None:
    guards = read(tmp_path, GOOD, JUDGE_KEY="k")

    assert [g.name for g in guards.of(Stage.INPUT, "t1")] == ["private", "secrets", "remote"]
    assert [g.name for g in guards.of(Stage.INPUT, "t2")] == ["private", "remote"]
    assert [g.name for g in guards.of(Stage.OUTPUT, "t1")] == ["private", "remote"]
    assert [g.fail for g in guards.of(Stage.INPUT, "t1")] == [FailMode.CLOSED, FailMode.CLOSED, FailMode.OPEN]
    await guards.close()
    assert read_guardrails(tmp_path / "none.toml", {}) == ()


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('kind = "magic"\nfail = "open"', "guardrails.x.kind: expected one of personal_data, patterns, service"),
        ('kind = "personal_data"', "guardrails.x.fail: is required"),
        ('kind = "personal_data"\nfail = "ajar"', "guardrails.x.fail: expected open, closed, got 'ajar'"),
        ('kind = "personal_data"\nfail = "open"\nhide = ["shoe"]', "guardrails.x.hide: expected email, phone"),
        ('kind = "patterns"\nfail = "open"\npatterns = ["("]', "guardrails.x.patterns: '(' is no regular expression"),
        ('kind = "patterns"\nfail = "open"', "needs at least one regular expression"),
        ('kind = "patterns"\nfail = "open"\npatterns = ["a"]\nurl = "u"', "guardrails.x.url: no such key"),
        ('kind = "service"\nfail = "open"\nurl = "ftp://a"', "expected an http or https URL, got 'ftp://a'"),
        ('kind = "service"\nfail = "open"\nurl = "http://a"\nkey_env = "NOPE"', "the environment has no NOPE"),
        ('kind = "service"\nfail = "open"\nurl = "http://a"\ntimeout_seconds = 0', "between 0 and 60, got 0"),
        ('kind = "personal_data"\nfail = "open"\non = "input"', "guardrails.x.on: expected a list, got 'input'"),
    ],
)
def test_a_wrong_table_is_told_with_its_key(tmp_path: Path, table: str, problem: str) -> None:
    with pytest.raises(GuardrailsInvalid) as caught:
        read(tmp_path, f"[guardrails.x]\n{table}\n")
    assert problem in str(caught.value)


async def test_what_a_user_says_is_changed_before_anybody_keeps_it(tmp_path: Path) -> None:
    guards = read(tmp_path, GOOD.split("[guardrails.remote]", maxsplit=1)[0])
    picture = MediaPart(media_type="image/png", is_image=True, inline=b"x")

    parts, notices = await guards.parts((TextPart(text="I am ann@example.com"), picture), "t1")

    assert parts == (TextPart(text="I am [e-mail]"), picture)
    assert notices == ("'private' changed your message: [e-mail] ×1.",)
    with pytest.raises(InputRefused, match="the message was refused: passwords do not belong here"):
        await guards.parts((TextPart(text="My password is x"),), "t1")
    assert (await guards.parts((TextPart(text="My password is x"),), "t2"))[1] == ()


async def test_only_the_users_words_of_a_history_are_judged(tmp_path: Path) -> None:
    guards = read(tmp_path, GOOD.split("[guardrails.secrets]", maxsplit=1)[0])
    said = (text_message(Role.USER, "a@b.cn"), Message(role=Role.ASSISTANT, parts=(TextPart(text="a@b.cn"),)))

    judged, notices = await guards.history(said, "t1")

    assert [message.text for message in judged] == ["[e-mail]", "a@b.cn"]
    assert len(notices) == 1


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"action": "pass"}, Checked(text="hi")),
        ({"action": "refuse", "reason": "rude"}, Refused(reason="rude")),
        ({"action": "replace", "text": "ho", "reason": "softer"}, Checked(text="ho", changes=("softer",))),
    ],
)
async def test_a_service_judges(answer: dict[str, str], verdict: Verdict) -> None:
    seen: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=answer)

    service = Service("http://judge/", Secret("k1"), timedelta(seconds=1), httpx.MockTransport(respond))

    assert await service.judge("hi", Stage.INPUT, "t1") == verdict
    assert seen[0].headers["authorization"] == "Bearer k1"
    assert seen[0].read() == b'{"stage":"input","text":"hi","tenant":"t1"}'
    await service.close()


@pytest.mark.parametrize(
    "response",
    [httpx.Response(500), httpx.Response(200, text="no json"), httpx.Response(200, json={"action": "dance"})],
)
async def test_a_service_that_gives_no_verdict_fails(response: httpx.Response) -> None:
    service = Service("http://judge/", Secret(""), timedelta(seconds=1), httpx.MockTransport(lambda _: response))

    with pytest.raises(ServiceFailed):
        await service.judge("hi", Stage.INPUT, "t1")
    await service.close()

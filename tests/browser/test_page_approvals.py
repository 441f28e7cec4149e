"""Deciding: the slip above the composer and the queue page."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from tests.support.fake_gateway import FakeGateway
from tests.support.fake_run import FakeRun
from tests.support.page_actions import ask, finished

pytestmark = pytest.mark.asyncio(loop_scope="session")


def decision(gateway: FakeGateway) -> dict[str, Any]:
    """The one decision that was sent."""
    sent = [body for _, path, _, body in gateway.requests if path.endswith("/decision")]
    assert len(sent) == 1
    return dict(sent[0])


async def slip(page: Page) -> Locator:
    card = page.get_by_role("region", name="May “run_code” run?")
    await expect(card).to_be_visible()
    return card


async def test_allowing_runs_the_code_and_shows_the_picture(page: Page, gateway: FakeGateway) -> None:
    turn = await ask(page, "/python print(1)")
    card = await slip(page)
    await expect(card.locator(".slip-reason")).to_contain_text("Draws the per diem rates")
    await expect(card.locator(".slip-body")).to_contain_text("print(1)")
    await expect(card.get_by_role("timer")).to_contain_text("left")
    await card.get_by_role("button", name="Allow once").click()
    await finished(turn)
    await expect(card).to_have_count(0)
    picture = turn.get_by_role("img", name="Picture from the sandbox: per-diem.png")
    await expect(picture).to_be_visible()
    assert await picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    assert decision(gateway) | {"arguments_digest": ""} == {
        "decision": "approve",
        "remember": "once",
        "arguments_digest": "",
    }
    await turn.locator(".steps > summary").click()
    await turn.locator(".row-call summary").click()
    await expect(turn.locator(".decision")).to_contain_text("Allowed by local")
    await expect(turn.locator(".detail-stdout")).to_contain_text("3 bars drawn")


@pytest.mark.parametrize(
    ("label", "remember"), [("Allow in this conversation", "conversation"), ("Always allow", "always")]
)
async def test_an_allowance_can_be_remembered(page: Page, gateway: FakeGateway, label: str, remember: str) -> None:
    turn = await ask(page, "/python print(1)")
    await (await slip(page)).get_by_role("button", name=label).click()
    await finished(turn)
    assert decision(gateway)["remember"] == remember


async def test_denying_with_a_note_tells_the_model(page: Page, gateway: FakeGateway) -> None:
    turn = await ask(page, "/python print(1)")
    card = await slip(page)
    await card.get_by_label("Note for the model (optional)").fill("use the table instead")
    await card.get_by_role("button", name="Deny").click()
    await finished(turn)
    assert decision(gateway)["decision"] == "deny"
    assert decision(gateway)["comment"] == "use the table instead"
    await turn.locator(".steps > summary").click()
    await expect(turn.locator(".row-call")).to_contain_text("denied")
    await expect(turn.locator(".files")).to_be_hidden()


async def test_edited_arguments_are_the_ones_sent(page: Page, gateway: FakeGateway) -> None:
    turn = await ask(page, "/python print(1)")
    card = await slip(page)
    await card.get_by_role("button", name="Edit").click()
    field = card.get_by_role("textbox", name="code")
    await expect(field).to_be_focused()
    await field.fill("print(2)")
    await card.get_by_role("button", name="Run the edited call").click()
    await finished(turn)
    assert decision(gateway)["decision"] == "edit"
    assert decision(gateway)["arguments"] == {"code": "print(2)"}
    change = turn.locator(".detail-diff")
    await expect(change.locator("del")).to_have_text("− print(1)\n")
    await expect(change.locator("ins")).to_have_text("+ print(2)\n")


async def test_leaving_the_editor_offers_the_four_answers_again(page: Page) -> None:
    await ask(page, "/python print(1)")
    card = await slip(page)
    await card.get_by_role("button", name="Edit").click()
    await card.get_by_role("button", name="Cancel").click()
    await expect(card.get_by_role("button", name="Allow once")).to_be_focused()


async def test_a_decision_that_came_too_late_says_who_decided(page: Page, gateway: FakeGateway) -> None:
    await ask(page, "/python print(1)")
    card = await slip(page)
    gateway.approvals["ap-run-1-c1"]["state"] = "APPROVAL_STATE_DENIED"
    await card.get_by_role("button", name="Allow once").click()
    await expect(card.locator(".slip-status")).to_contain_text("was decided by 'ada' already")
    await expect(card.get_by_role("button", name="Allow once")).to_be_disabled()


async def test_when_time_is_up_nothing_can_be_allowed(page: Page, gateway: FakeGateway) -> None:
    def short(run: FakeRun) -> None:
        run.ask("c1", "run_code", {"code": "1"}, "quickly", seconds=1)
        run.wait_for("over")

    gateway.scripts["Quick"] = short
    await ask(page, "Quick question")
    await slip(page)
    await expect(page.get_by_role("region", name="May “run_code” run?")).to_have_count(0)
    assert gateway.approvals["ap-run-1-c1"]["state"] == "APPROVAL_STATE_EXPIRED"


async def test_two_pending_decisions_are_answered_in_any_order(page: Page, gateway: FakeGateway) -> None:
    def twice(run: FakeRun) -> None:
        for call in ("c1", "c2"):
            arguments = {"approval_id": f"ap-{call}", "call_id": call, "tool": call, "reason": f"reason {call}"}
            gateway.approvals[f"ap-{call}"] = {"state": "APPROVAL_STATE_PENDING", "run_id": run.run_id, "tool": call}
            run.emit("approval_requested", **arguments)
        for call in ("c2", "c1"):
            with run.changed:
                run.changed.wait_for(lambda call=call: "decision" in gateway.approvals[f"ap-{call}"], timeout=20)  # type: ignore[misc]
            run.emit("approval_resolved", approval_id=f"ap-{call}", call_id=call, resolution="RESOLUTION_APPROVED")
        run.emit("run_completed", text="Both.", message_id="m")

    gateway.scripts["Twice"] = twice
    turn = await ask(page, "Twice please")
    await page.get_by_role("region", name="May “c2” run?").get_by_role("button", name="Allow once").click()
    await expect(page.locator(".slip")).to_have_count(1)
    await page.get_by_role("region", name="May “c1” run?").get_by_role("button", name="Allow once").click()
    await finished(turn)


async def test_the_queue_decides_and_keeps_what_was_decided(page: Page, gateway: FakeGateway) -> None:
    await ask(page, "/python print(1)")
    await slip(page)
    await page.get_by_role("link", name="Approvals").click()
    card = await slip(page)
    await expect(card).to_contain_text("run_code asks by default")
    await card.get_by_role("button", name="Allow once").click()
    await expect(page.locator(".queue")).to_have_text("Nothing waits for you.")
    await page.get_by_role("button", name="Decided").click()
    await expect(page.locator(".record")).to_contain_text("allowed")
    await page.get_by_label("Tool").fill("other_tool")
    await page.get_by_label("Tool").press("Enter")
    await expect(page.locator(".queue")).to_have_text("No approvals match.")


async def test_a_pending_decision_survives_a_reload(page: Page) -> None:
    await ask(page, "/python print(1)")
    await slip(page)
    await page.reload()
    await (await slip(page)).get_by_role("button", name="Allow once").click()
    await finished(page.locator(".turn"))


async def test_an_allow_rule_is_taken_back(page: Page, gateway: FakeGateway) -> None:
    gateway.rules = [{"rule_id": "r1", "tool": "run_code", "conversation_id": ""}]
    await page.get_by_role("link", name="Approvals", exact=True).click()
    rules = page.locator(".rules")
    await expect(rules).to_contain_text("run_code")
    await rules.get_by_role("button", name="Ask again for run_code").click()
    await expect(rules).to_be_hidden()
    assert gateway.deleted == {"r1"}


@pytest.mark.parametrize(("button", "told"), [("Go on", "You said: The lamp is green."), ("End here", "nothing more")])
async def test_a_run_that_waits_for_its_user_goes_on_with_a_message_or_ends(
    page: Page, gateway: FakeGateway, button: str, told: str
) -> None:
    turn = await ask(page, "Stand by")
    card = page.get_by_role("region", name="The agent waits for you")
    await expect(card).to_contain_text("Restart the router, then tell me")
    await expect(turn.locator(".row-call")).to_contain_text("asking you")
    await page.reload()  # what it waits for is in the journal
    if button == "Go on":
        await card.get_by_label("Your message").fill("The lamp is green")
    await card.get_by_role("button", name=button).click()
    turn = await finished(page.locator(".turn"))
    await expect(turn.locator(".prose")).to_contain_text(told)
    await expect(card).to_have_count(0)


async def test_what_was_answered_is_told_in_the_timeline_and_the_queue(page: Page, gateway: FakeGateway) -> None:
    turn = await ask(page, "Ask me")
    card = page.get_by_role("region", name="Questions for you")
    await card.get_by_label("Zurich").check()
    await card.get_by_label("How many days?").fill("3")
    await card.get_by_role("button", name="Send answers").click()
    await finished(turn)
    await turn.locator(".steps > summary").click()
    await turn.locator(".row-questions summary").click()
    await expect(turn.locator(".row-questions .answers")).to_have_text("Which city?ZurichHow many days?3")
    gateway.approvals["q1"] |= {
        "questions": [{"question_id": "city", "text": "Which city?"}],
        "answer_json": {"city": "Zurich"},
    }
    await page.goto(f"{gateway.url}/approvals")
    await page.get_by_role("button", name="Decided").click()
    await page.locator(".record summary", has_text="Which city?").click()
    await expect(page.locator(".record .answers")).to_have_text("Which city?Zurich")


async def test_what_a_program_must_answer_is_shown_and_not_offered(page: Page, gateway: FakeGateway) -> None:
    gateway.approvals["t1"] = {
        "approval_id": "t1",
        "kind": "APPROVAL_KIND_CLIENT_TOOL",
        "state": "APPROVAL_STATE_PENDING",
        "tool": "read_sensor",
        "run_id": "r1",
    }
    await page.goto(f"{gateway.url}/approvals")
    await expect(page.locator(".record")).to_contain_text("Waits for the program that asked")
    await expect(page.locator(".slip")).to_have_count(0)


async def test_a_workflow_asks_for_approval_in_its_own_words(page: Page, gateway: FakeGateway) -> None:
    message = "A trip for EUR 4000 needs your approval."

    def trip(run: FakeRun) -> None:
        run.emit("step_started", step_id="approve", title="Head of department", kind="approval")
        arguments = {"message": message, "details": {"cost": 4000}}
        run.emit(
            "tool_call_proposed",
            call={"call_id": "c1", "name": "request_approval", "arguments_json": arguments, "reason": message},
        )
        decision = run.ask("c1", "request_approval", arguments, message)
        run.emit("run_completed", text=decision["decision"], message_id="m")

    gateway.scripts["Trip"] = trip
    turn = await ask(page, "Trip to Munich")
    card = page.get_by_role("region", name="Your approval is asked")
    await expect(card.locator(".slip-reason")).to_have_text(message)
    await expect(card.locator(".slip-body")).to_contain_text('"cost": 4000')
    await expect(card.locator(".slip-body")).not_to_contain_text("message")
    await expect(card.get_by_role("button")).to_have_text(["Approve", "Edit", "Deny"])
    await card.get_by_role("button", name="Approve").click()
    await finished(turn)
    await expect(turn.locator(".prose")).to_have_text("approve")


async def test_what_asks_at_every_call_offers_no_rule(page: Page, gateway: FakeGateway) -> None:
    gateway.approvals["g1"] = {
        "approval_id": "g1",
        "kind": "APPROVAL_KIND_TOOL",
        "state": "APPROVAL_STATE_PENDING",
        "gate": "GATE_QUORUM",
        "tool": "pay",
        "run_id": "r1",
    }
    await page.goto(f"{gateway.url}/approvals")
    await expect(page.locator(".slip").get_by_role("button")).to_have_text(["Allow once", "Edit", "Deny"])

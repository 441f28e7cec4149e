"""Asking and reading: the answer, its steps, its citations, and what goes wrong."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.support.fake_gateway import FakeGateway
from tests.support.page_actions import ask, finished

pytestmark = pytest.mark.asyncio(loop_scope="session")

PER_DIEM = "What is the per diem for four days in Singapore?"


async def test_an_answer_comes_with_steps_formulas_tables_and_sources(page: Page) -> None:
    turn = await finished(await ask(page, PER_DIEM))
    await expect(turn.locator(".question")).to_have_text(PER_DIEM)
    await expect(turn.locator(".prose strong")).to_have_text("EUR 224")
    await expect(turn.locator(".prose math")).to_have_count(1)
    await expect(turn.locator(".prose tbody tr")).to_have_count(3)
    await expect(turn.locator(".notes > .note-list .note")).to_have_count(3)
    await expect(turn.locator(".notes .also-read > summary")).to_have_text("1 more passage read")
    await turn.locator(".steps > summary").click()
    await expect(turn.locator(".row-call .row-title")).to_contain_text("search")
    await expect(turn.locator(".row-thinking .thought")).to_be_hidden()


async def test_a_citation_opens_its_passage_in_place_and_escape_closes_it(page: Page) -> None:
    turn = await finished(await ask(page, PER_DIEM))
    chip = turn.get_by_role("button", name="Source 2: Per diem and hotel limits, passage").first
    await chip.click()
    passage = turn.locator(".prose .passage")
    await expect(passage).to_contain_text("each paid at 60 %")
    await expect(passage.locator(".badge")).to_have_text("passage")
    await expect(chip).to_have_attribute("aria-expanded", "true")
    await passage.get_by_role("button", name="Show the whole passage").click()
    await expect(passage).to_contain_text("The whole passage p2.")
    await chip.focus()
    await chip.press("Escape")
    await expect(passage).to_have_count(0)
    await expect(chip).to_be_focused()


async def test_opening_another_citation_closes_the_first(page: Page) -> None:
    turn = await finished(await ask(page, PER_DIEM))
    await turn.locator("button.cite").nth(0).click()
    await turn.locator("button.cite").nth(1).click()
    await expect(turn.locator(".prose .passage")).to_have_count(1)


async def test_a_number_without_evidence_is_marked_and_opens_nothing(page: Page) -> None:
    turn = await finished(await ask(page, PER_DIEM))
    chip = turn.get_by_role("button", name="There is no source 9")
    await expect(chip).to_be_disabled()
    await expect(turn.locator("button.cite.unknown")).to_have_count(1)


async def test_kinds_of_evidence_have_their_own_badges(page: Page) -> None:
    turn = await finished(await ask(page, PER_DIEM))
    await turn.locator(".also-read > summary").click()
    assert await turn.locator(".notes .badge").all_text_contents() == ["passage", "passage", "web page", "summary"]


async def test_text_appears_while_the_run_still_works(page: Page, gateway: FakeGateway) -> None:
    turn = await ask(page, "Wait for me")
    await expect(turn.locator(".prose")).to_contain_text("First half.")
    await expect(turn.locator(".steps-label")).to_have_text("Thinking it over")
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    gateway.release("rest")
    await expect((await finished(turn)).locator(".prose")).to_have_text("First half. Second half.")
    await expect(page.get_by_role("button", name="Send")).to_be_visible()


async def test_stop_cancels_the_run(page: Page, gateway: FakeGateway) -> None:
    turn = await ask(page, "Wait for me")
    await expect(turn.locator(".prose")).to_contain_text("First half.")
    await page.get_by_role("button", name="Stop").click()
    await finished(turn, "cancelled")
    await expect(turn.locator(".outcome")).to_contain_text("Stopped by local")
    assert ("POST", "/v1/runs/run-1/cancel") in [request[:2] for request in gateway.requests]


async def test_a_failed_run_keeps_its_partial_text_and_says_what_to_do(page: Page) -> None:
    turn = await finished(await ask(page, "Fail please"), "failed")
    await expect(turn.locator(".prose")).to_have_text("Half an ans")
    await expect(turn.locator(".outcome")).to_contain_text("The model sent nothing for 180 s. Asking again may help.")


async def test_withdrawn_text_leaves_the_answer(page: Page, gateway: FakeGateway) -> None:
    turn = await ask(page, "Retract something")
    await expect(turn.locator(".prose")).to_have_text("Wrong words.")
    gateway.release("retract")
    await finished(turn)
    await expect(turn.locator(".prose")).to_have_text("Right words.")
    await turn.locator(".steps > summary").click()
    await expect(turn.locator(".withdrawn")).to_have_text("Wrong words.")


async def test_asking_again_replaces_the_turn(page: Page, gateway: FakeGateway) -> None:
    turn = await finished(await ask(page, PER_DIEM))
    await turn.get_by_role("button", name="Ask again").click()
    await expect(page.locator(".turn")).to_have_count(1)
    await finished(page.locator(".turn"))
    bodies = [body for method, path, _, body in gateway.requests if (method, path) == ("POST", "/v1/runs")]
    assert bodies[1]["supersede_message_id"] == "um-run-1"
    assert bodies[1]["conversation_id"] == "conv-run-1"
    assert bodies[0]["request_id"] != bodies[1]["request_id"]
    await page.reload()
    await finished(page.locator(".turn"))
    await expect(page.locator(".turn")).to_have_count(1)


async def test_an_edited_question_replaces_its_turn_and_those_after_it(page: Page, gateway: FakeGateway) -> None:
    first = await finished(await ask(page, "Count"))
    await finished(await ask(page, PER_DIEM))
    await first.get_by_role("button", name="Edit the question").click()
    box = page.get_by_role("textbox", name="Your question")
    await expect(box).to_have_value("Count")
    await box.fill("Count again")
    await box.press("Enter")
    await expect(page.locator(".turn")).to_have_count(1)
    await expect((await finished(page.locator(".turn"))).locator(".question")).to_have_text("Count again")
    assert gateway.runs["run-3"].body["supersede_message_id"] == "um-run-1"


async def test_a_reload_shows_the_conversation_again(page: Page) -> None:
    await finished(await ask(page, PER_DIEM))
    await finished(await ask(page, "Fail please"), "failed")
    assert page.url.endswith("/c/conv-run-1")
    await page.reload()
    await finished(page.locator(".turn").nth(0))
    await finished(page.locator(".turn").nth(1), "failed")
    await expect(page.locator(".turn").nth(0).locator(".prose strong")).to_have_text("EUR 224")
    await page.locator(".turn").nth(0).locator(".steps > summary").click()
    await expect(page.locator(".row-call")).to_have_count(1)


async def test_the_question_form_answers_the_run(page: Page, gateway: FakeGateway) -> None:
    turn = await ask(page, "Ask me things")
    form = page.get_by_role("region", name="Questions for you")
    await form.get_by_label("Zurich").check()
    await form.get_by_label("How many days?").fill("3")
    await form.get_by_role("button", name="Send answers").click()
    await finished(turn)
    await expect(turn.locator(".prose")).to_have_text("Zurich for 3 days.")
    body = next(body for method, path, _, body in gateway.requests if path == "/v1/approvals/q1/decision")
    assert body == {"decision": "answer", "answers": {"city": "Zurich", "days": 3}}


async def test_enter_sends_and_shift_enter_makes_a_line(page: Page, gateway: FakeGateway) -> None:
    box = page.get_by_role("textbox", name="Your question")
    await box.fill("Count")
    await box.press("Shift+Enter")
    await expect(page.locator(".turn")).to_have_count(0)
    await box.evaluate(
        "e => e.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true}))"
    )
    await expect(page.locator(".turn")).to_have_count(0)
    await box.press("Enter")
    await finished(page.locator(".turn"))
    assert [run.question for run in gateway.runs.values()] == ["Count"]


async def test_the_chosen_agent_and_model_travel_with_the_question(page: Page, gateway: FakeGateway) -> None:
    await page.get_by_label("Agent").select_option("research")
    await page.get_by_label("Model").select_option("gpt-large")
    await finished(await ask(page, "Count"))
    assert gateway.runs["run-1"].body["agent_id"] == "research"
    assert gateway.runs["run-1"].body["model"] == "gpt-large"


async def test_the_choice_made_before_holds_for_a_question_sent_while_the_choices_load(
    page: Page, gateway: FakeGateway
) -> None:
    await page.get_by_label("Agent").select_option("research")
    await page.route("**/v1/agents*", lambda route: None)  # never answered
    await page.reload()
    await finished(await ask(page, "Count"))
    assert gateway.runs["run-1"].body["agent_id"] == "research"


async def test_a_server_that_wants_a_key_is_given_one(page: Page, gateway: FakeGateway) -> None:
    gateway.key = "pk-1"
    await page.get_by_role("textbox", name="Your question").fill("Count")
    await page.get_by_role("textbox", name="Your question").press("Enter")
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Make one with: proctor keys create")
    await dialog.get_by_label("API key").fill("wrong")
    await dialog.get_by_role("button", name="Continue").click()
    await expect(dialog).to_contain_text("send 'Authorization: Bearer <key>'")
    await dialog.get_by_label("API key").fill("pk-1")
    await dialog.get_by_role("button", name="Continue").click()
    await finished(page.locator(".turn"))


async def test_attached_files_travel_with_the_question(page: Page, gateway: FakeGateway) -> None:
    files = [{"name": name, "mimeType": "text/plain", "buffer": b"x"} for name in ("a.txt", "b.exe", "c.txt")]
    await page.locator(".composer input[type=file]").set_input_files(files)  # type: ignore[arg-type]
    listed = page.locator(".composer").get_by_role("list", name="Attached files")
    await expect(listed.locator("li", has_text="b.exe")).to_contain_text("'b.exe' is too large")
    await listed.get_by_role("button", name="Remove: c.txt").click()
    turn = await finished(await ask(page, "Count"))
    assert gateway.runs["run-1"].body["attachments"] == ["att-a.txt"]
    await expect(listed).to_be_hidden()
    await expect(turn.get_by_role("list", name="Attached files")).to_have_text("a.txt")
    await page.reload()
    turn = await finished(page.locator(".turn"))
    await expect(turn.get_by_role("list", name="Attached files")).to_have_text("a.txt")
    async with page.expect_download() as download:
        await turn.get_by_role("button", name="a.txt").click()
    assert (await download.value).suggested_filename == "a.txt"
    await turn.get_by_role("button", name="Ask again").click()
    turn = await finished(page.locator(".turn"))
    assert gateway.runs["run-2"].body["attachments"] == ["att-a.txt"]
    await turn.get_by_role("button", name="Edit the question").click()
    await expect(listed.locator("li")).to_contain_text("a.txt")
    await listed.get_by_role("button", name="Remove: a.txt").click()
    await page.get_by_role("textbox", name="Your question").press("Enter")
    await finished(page.locator(".turn"))
    assert "attachments" not in gateway.runs["run-3"].body


async def test_an_answer_is_rated(page: Page, gateway: FakeGateway) -> None:
    turn = await finished(await ask(page, PER_DIEM))
    await turn.get_by_role("button", name="Bad answer").click()
    await expect(turn.get_by_role("button", name="Bad answer")).to_have_attribute("aria-pressed", "true")
    await turn.get_by_role("button", name="Bad answer").click()
    await expect(turn.get_by_role("button", name="Bad answer")).to_have_attribute("aria-pressed", "false")
    path = "/v1/conversations/conv-run-1/messages/am1/feedback"
    sent = [body for _, asked, _, body in gateway.requests if asked == path]
    assert sent == [{"rating": "bad"}, {"rating": "none"}]
    await page.reload()
    turn = await finished(page.locator(".turn"))
    await expect(turn.get_by_role("button", name="Good answer")).to_have_attribute("aria-pressed", "true")


async def test_a_long_question_is_whole_again_after_a_reload(page: Page) -> None:
    question = "Count " + "and count again " * 30
    await finished(await ask(page, question.strip()))
    await page.reload()
    turn = await finished(page.locator(".turn"))
    await expect(turn.locator(".question")).to_have_text(question.strip())
    await expect(turn.get_by_role("button", name="Ask again")).to_be_visible()


async def test_the_sentence_that_supports_a_citation_is_marked(page: Page) -> None:
    turn = await finished(await ask(page, PER_DIEM))
    await turn.locator("button.cite", has_text="2").nth(1).click()
    await expect(turn.locator(".prose mark.support")).to_contain_text("The day of departure and the day of return")


async def test_a_research_run_shows_its_plan_and_what_each_step_did(page: Page) -> None:
    turn = await finished(await ask(page, "Compare London and Zurich"))
    await expect(turn.locator(".prose")).to_contain_text("Zurich pays EUR 14 more")
    await turn.locator(".steps > summary").click()
    steps = turn.locator(".row-step")
    await expect(steps).to_have_count(2)
    await steps.nth(1).locator("summary").first.click()
    await expect(steps.nth(1).locator(".row-call")).to_contain_text("Rates in Zurich")
    await expect(steps.nth(1).locator(".row-call")).to_have_count(1)
    await expect(steps.nth(1)).to_contain_text("Found: Rates in Zurich.")
    await expect(turn.locator(".row-plan li")).to_have_count(2)

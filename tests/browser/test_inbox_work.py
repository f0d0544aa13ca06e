"""Work in the inbox in a real browser: by keyboard, on a phone, with several people, with a thousand
questions.
"""

from __future__ import annotations

from typing import Final

import httpx
import pytest
from dev_stack import Stack, until
from inbox_page import Page, ask, asked, ended, listed, question_of, respond, view_of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240), pytest.mark.xdist_group("inbox")]

# Scrolls the list from its top to its end, and returns the time of the longest frame in ms.
SCROLL: Final = """
const done = arguments[arguments.length - 1];
const list = document.querySelector("#list");
let [before, longest] = [performance.now(), 0];
const step = (now) => {
  longest = Math.max(longest, now - before);
  before = now;
  const at = list.scrollTop;
  list.scrollTop += 120;
  if (list.scrollTop === at) done(longest);
  else requestAnimationFrame(step);
};
requestAnimationFrame((now) => { before = now; requestAnimationFrame(step); });
"""
READ: Final = """
const asked = performance.getEntriesByType("resource").filter(({name}) => /[/]interrupts[/?]/.test(name));
return asked.map(({name}) => name).filter((name) => !name.includes("status="));
"""
# The clock of the machine is two hours ahead, and a minute is over within a second.
CLOCK: Final = """
let ahead = 120;
const [now, setEach] = [Date.now, setInterval];
Date.now = () => now() + ahead * 60_000;
setInterval = (act, time) => setEach(act, time === 60_000 ? 1_000 : time);
pass = (minutes) => { ahead += minutes; };
"""
# One decision is 200, and there is always a next page.
DECISIONS: Final = """
const real = fetch;
fetch = async (path, options) => {
  const answer = await real(path.replace(/&cursor=[^&]*/, ""), options);
  if (!path.startsWith("/approvals")) return answer;
  const {items: [first], ...others} = await answer.json();
  const items = Array.from({length: 200}, (_, number) => ({...first, id: `${first.id}${number}`}));
  return new Response(JSON.stringify({...others, items, next_cursor: "next"}));
};
"""
ENTER: Final = "\ue007"
ESCAPE: Final = "\ue00c"


def test_an_approver_edits_a_call_and_reads_what_was_really_decided(
    page: Page, running: Stack
) -> None:
    run_id = asked(running.api, "pay", graph="payments")
    page.open("Refund 5000 to Ada?")
    page.says("article h2", "Refund 5000 to Ada?")
    page.says(".prose strong", "twice")
    assert not [each for each in page.all(".field input") if each.is_displayed()]
    page.press("Edit")
    assert page.field("Amount").get_attribute("value") == "5000"
    assert page.field("By").get_attribute("type") == "date"
    page.field("Amount").clear()
    page.field("Amount").send_keys("900")
    page.says(".changes", "5000 → 900")
    page.press("Approve")
    page.says("article", "You approved refund with amount 900 (was 5000)")
    view = ended(running.api, run_id)
    assert "sent 900 to Ada by 2026-12-24 (bank, 1 lines)" in view["values"]["report"]
    page.press("Decided")
    page.says("#questions a", "approved with amount 900 (was 5000) by you")
    page.open("Refund 5000 to Ada?")
    page.says("article .changed", "5000 → 900")


def test_an_approver_answers_in_place_of_a_call(page: Page, running: Stack) -> None:
    run_id = asked(running.api, "pay", graph="payments")
    page.open("Refund 5000 to Ada?")
    page.click("form.answer > div details summary")
    page.field("Result that the agent reads (text or JSON)").send_keys("already refunded")
    page.press("Send this result")
    page.says("article", "the agent reads already refunded")
    assert "already refunded" in ended(running.api, run_id)["values"]["report"]


def test_a_fault_is_beside_its_field_in_a_list_that_was_edited(page: Page, running: Stack) -> None:
    run_id = asked(running.api, "send", graph="shipping")
    page.open("Ship?")
    page.press("Edit")
    page.press("Remove")
    pieces = page.field("Pieces")
    pieces.clear()
    pieces.send_keys("10")
    page.press("Approve")
    page.says(".fault", "10 is greater than the maximum of 9")
    assert page.one(f"#{pieces.get_attribute('id')}-fault").is_displayed()
    pieces.clear()
    pieces.send_keys("2")
    page.press("Approve")
    page.says("article", "You approved ship with")
    assert "['2 rope']" in ended(running.api, run_id)["values"]["report"]


def readings(page: Page) -> int:
    """Return how often the page has read lists of questions."""
    script = (
        "return performance.getEntriesByType('resource')"
        ".filter(({name}) => name.includes('/interrupts?')).length"
    )
    return int(page.driver.execute_script(script))


def test_a_new_question_costs_an_open_inbox_one_read_and_an_answer_none(
    page: Page, running: Stack
) -> None:
    before = readings(page)
    run_id = asked(running.api, "pay", graph="payments")
    page.says("#state", "1 open question")
    shown = readings(page)
    respond(running.api, question_of(running.api, run_id), "bob", {"approved": False})
    page.says("#state", "No open questions")

    assert (shown - before, readings(page) - shown) == (1, 0)
    page.press("Decided")
    page.says("#questions a", "rejected by bob")
    run_id = asked(running.api, "pay", graph="payments")
    respond(running.api, question_of(running.api, run_id), "carol", {"approved": False})
    page.says("#questions a", "rejected by carol")


def test_a_budget_is_raised_or_its_agent_stopped(page: Page, running: Stack) -> None:
    run_id = asked(running.api, "pay", graph="budgeted")
    page.open("turns")
    assert [page.field(label).get_attribute("value") for label in ("Usd", "Turns")] == ["", ""]
    page.press("Send answer")
    page.says("article [role=alert]", "has less than 1 property")
    page.field("Turns").send_keys("1")
    page.press("Send answer")
    page.says(".fault", "minimum of 2")
    page.field("Turns").clear()
    page.field("Turns").send_keys("9")
    page.press("Send answer")
    page.says("article", "You answered")
    assert ended(running.api, run_id)["values"]["report"] == "all is well"

    stopped = asked(running.api, "pay", graph="budgeted")
    page.open("turns")
    page.choose("Stop", "Stop clerk")
    page.press("Send answer")
    page.says("article", "You answered")
    until(lambda: view_of(running.api, stopped)["status"] == "failed", "an agent that is stopped")
    assert view_of(running.api, stopped)["error"]["code"] == "budget_exhausted"


def test_the_inbox_is_worked_through_by_keyboard_alone(page: Page, running: Stack) -> None:
    runs = [asked(running.api, f"Publish {name}?", graph="plain") for name in ("one", "two")]
    page.says("#state", "2 open questions")
    page.says("article h2", "Publish one?")
    page.keys("j")
    page.sees_focus("Publish two?")
    page.says("article h2", "Publish two?")
    page.keys("x")
    page.keys("k")
    page.keys("x")
    page.says("#together", "2 selected")
    # The page draws the list anew, and the focus stays.
    page.sees_focus("Publish one?")
    page.keys("x")
    page.keys(ENTER)
    page.says("article h2", "Publish one?")
    page.sees_focus("Publish one?")
    outline = page.driver.execute_script(
        "document.querySelector('#questions a').focus();"
        "return getComputedStyle(document.activeElement).outlineStyle"
    )
    assert outline == "solid"
    page.keys("a")
    page.says("dialog", "An answer cannot be taken back.")
    page.keys(ESCAPE)
    assert page.all("dialog[open]") == []
    page.keys("a")
    page.says("dialog", "Approve?Publish one?")
    page.keys(ENTER)
    page.says("article", "You approved “Publish one?”")
    page.says("article .badge", "completed")
    page.keys("?")
    page.says("#help", "approve, reject")
    page.keys(ESCAPE)
    page.keys("j")
    page.sees_focus("Publish two?")
    page.keys(ENTER)
    page.says("article h2", "Publish two?")
    page.keys(ESCAPE)
    page.sees_focus("Publish two?")
    page.keys(ENTER)
    page.says("article h2", "Publish two?")
    page.keys("r")
    page.says("dialog", "Reject?Publish two?")
    page.keys(ENTER)
    page.says("article", "You rejected “Publish two?”")
    assert [ended(running.api, run_id)["values"]["answer"] for run_id in runs] == [True, False]


def test_equal_questions_are_answered_together_with_a_result_for_each(
    page: Page, running: Stack
) -> None:
    for name in ("one", "two", "three"):
        asked(running.api, f"Publish {name}?", graph="plain")
    page.says("#state", "3 open questions")
    page.click("#grouped")
    page.press("Select all 3")
    page.press("Answer all selected…")
    page.says("article h2", "Answer 3 questions: plain")
    late = httpx.get(f"{running.api}/interrupts").json()["items"][0]
    respond(running.api, late["id"], "bob", answer=False)
    page.press("Approve (3)")
    page.says("dialog", "Approve 3 questions?")
    page.keys(ENTER)
    until(lambda: all(page.texts(".result")), "three results")
    results = page.texts(".result")
    assert sum("You approved “Publish" in each for each in results) == 2
    assert sum("bob" in each for each in results) == 1
    page.says("#state", "No open questions")


def test_several_people_approve_and_a_yes_is_taken_back(page: Page, running: Stack) -> None:
    voted = asked(running.api, "Pay 900?", graph="voted")
    respond(running.api, question_of(running.api, voted), "bob", answer=True)
    page.says("#questions .count", "1/2 approvals")
    page.open("Pay 900?")
    page.says("[aria-label=Votes] li", "bob")
    page.says("[aria-label=Votes]", "1 of 2 approvals")
    page.says("[aria-label=Votes]", "1 missing")
    page.press("Approve")
    page.says("article", "You approved “Pay 900?”")
    assert ended(running.api, voted)["values"]["answer"] is True

    asked(running.api, "Send it?", graph="held")
    page.open("Send it?")
    page.says(".decision", "An approval is held for 1 hour")
    page.press("Approve")
    page.says("article", "until then you can take it back")
    page.press("Held 1")
    page.open("Send it?")
    page.says("article", "Approved by you")
    page.says("article", "Answer")
    page.press("Take back")
    page.says("article", "The question is open again")
    page.says("#state", "1 open question")


def test_the_next_question_is_one_that_the_reader_may_answer(page: Page, running: Stack) -> None:
    asked(running.api, "Publish one?", graph="plain")
    asked(running.api, "Pay 900?", graph="voted")
    asked(running.api, "For bob?", graph="apart")
    asked(running.api, "Publish two?", graph="plain")
    page.says("#state", "4 open questions")
    page.open("Pay 900?")
    page.press("Approve")
    page.says("article [role=status]", "It is one vote: 1 more person has to approve.")
    page.says(".decision", "You approved now; another answer replaces that.")
    page.click(".outcome a")
    page.says("article h2", "Publish two?")
    page.press("Approve")
    page.says("article .next", "Publish one?")
    page.click("article .next a")
    page.says("article h2", "Publish one?")
    for id_ in (each["id"] for each in listed(running.api) if each["name"] == "decide"):
        if "Pay 900?" in str(httpx.get(f"{running.api}/interrupts/{id_}").json()["prompt"]):
            respond(running.api, id_, "bob", answer=True)
    page.says("#state", "2 open questions")
    page.press("Approve")
    page.says("article", "No other question in this list is for you.")


def test_filters_that_no_question_passes_are_cleared(page: Page, running: Stack) -> None:
    asked(running.api, "Publish one?", graph="plain")
    page.says("#questions a", "Publish one?")
    page.one("#by-text").send_keys("Publish two")
    page.says("#questions", "No question passes the filters.")
    page.press("Clear the filters")
    page.says("#questions a", "Publish one?")
    assert page.one("#by-text").get_attribute("value") == ""


def test_a_settled_question_says_what_was_decided_and_nothing_that_counts_no_more(
    page: Page, running: Stack
) -> None:
    id_ = question_of(running.api, asked(running.api, "Publish?", graph="urgent"))
    page.open("Publish?")
    page.says(".badges", "due in")
    page.says("[aria-label='About the question'] dl", "then the run stops")
    respond(running.api, id_, "bob", answer=True)
    page.says("article [role=status]", "Approved by bob")
    assert "due in" not in "".join(page.texts(".badges"))
    about = "".join(page.texts("[aria-label='About the question'] dl"))
    assert "Deadline" in about
    assert "then" not in about
    assert "May answer" not in about


def test_a_question_is_claimed_released_and_given_to_somebody_else(
    page: Page, running: Stack
) -> None:
    id_ = question_of(running.api, asked(running.api, "Who looks?", graph="plain"))
    page.open("Who looks?")
    ask(running.api, id_, "claim", "bob")
    page.says("[role=note]", "bob works on this until")
    assert page.all("form.answer") == []
    page.says("#questions .facts", "claimed by bob")
    ask(running.api, id_, "release", "bob")
    page.press("Claim")
    page.says("article", "You work on this until")
    page.press("Mine 1")
    page.says("#questions a", "Who looks?")
    page.press("Release")
    page.press("Claim")
    # Wait until the page is drawn after the claim: that replaces a form that was opened before.
    page.says("article", "You work on this until")
    page.press("Reassign…")
    page.one("#reassign-to").send_keys("bob, group:finance")
    page.click("form.inline button")
    page.says("article", "You gave the question to bob, group:finance.")
    page.says("article dd", "bob, group:finance")
    assert [each["assignees"] for each in listed(running.api)] == [["bob", "group:finance"]]


def test_times_are_those_of_the_service_and_pass(page: Page, running: Stack) -> None:
    asked(running.api, "Hurry?", graph="urgent")
    about = {"source": CLOCK}
    script = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", about)
    try:
        page.driver.refresh()
        page.open("Hurry?")
        page.says("#questions time", "due in 60 minutes")
        page.says("article .badges time", "due in 60 minutes")
        page.driver.execute_script("pass(30)")
        page.says("#questions time", "due in 30 minutes")
        page.says("article .badges time", "due in 30 minutes")
    finally:
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_decisions_that_are_too_many_to_list_are_said_to_be_more(
    page: Page, running: Stack
) -> None:
    id_ = question_of(running.api, asked(running.api, "Settle?", graph="plain"))
    respond(running.api, id_, "ada", answer=True)
    page.driver.execute_script(DECISIONS)
    page.press("Decided")
    page.says("#questions p", "These are of the newest 2000: the report has all")


def test_the_list_says_at_once_to_whom_somebody_gave_a_question(page: Page, running: Stack) -> None:
    id_ = question_of(running.api, asked(running.api, "Whose?", graph="apart"))
    page.says("#questions .people", "for bob")
    body = {"to": ["carol"]}
    httpx.post(f"{running.api}/interrupts/{id_}/reassign", json=body).raise_for_status()
    until(lambda: "for carol" in page.texts("#questions .people")[0], "carol", seconds=8)


def test_a_question_for_others_says_so_instead_of_a_form(page: Page, running: Stack) -> None:
    asked(running.api, "For bob?", graph="apart")
    page.says("#questions .facts", "not for you")
    page.open("For bob?")
    page.says("[role=note]", "bob")
    page.says("article dd", "whoever is one of the assignees")
    page.says("article dd", "local, who started the run")
    assert page.all("form.answer") == []


def test_barred_people_are_not_among_the_missing_voters(page: Page, running: Stack) -> None:
    asked(running.api, "Pay 900?", graph="counted")
    page.open("Pay 900?")
    page.says("[aria-label=Votes]", "2 missing, of you, bob")
    assert page.texts("[aria-label=Votes] .badge") == ["pending", "pending"]


def test_fields_of_another_decision_are_neither_shown_nor_sent(page: Page, running: Stack) -> None:
    run_id = asked(running.api, "Where to?", graph="offered")
    page.open("Where to?")
    assert not page.one("form.answer fieldset fieldset:not(.choices)").is_displayed()
    page.choose("Action", "accept")
    page.says("form.answer", "Class")
    assert page.one("form.answer fieldset fieldset:not(.choices)").is_displayed()
    page.choose("Action", "decline")
    assert not page.one("form.answer fieldset fieldset:not(.choices)").is_displayed()
    page.press("Send answer")
    assert ended(running.api, run_id)["values"]["report"] == "{'action': 'decline'}"


def test_a_question_shows_its_pictures_and_offers_its_documents(page: Page, running: Stack) -> None:
    asked(running.api, "Is the scan readable?", graph="shown")
    page.open("Is the scan readable?")
    wide = "return document.querySelector('article img')?.naturalWidth"
    until(lambda: page.driver.execute_script(wide) == 1, "the picture")
    assert page.texts("article dl.values a[download='letter.html']") == ["letter.html"]
    assert page.texts("article dl.values a") == ["letter.html"]
    page.says("article dl.values", "javascript:alert(1)")


def test_on_a_phone_there_is_the_list_or_the_question(page: Page, running: Stack) -> None:
    asked(running.api, f"Publish {'averylongword' * 12}?", graph="urgent")
    asked(running.api, "pay", graph="payments")
    # A window of Chromium is no narrower than 500 pixels, but a screen is.
    narrow = {"width": 320, "height": 640, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    try:
        page.says("#questions a", "averylongword")
        assert page.one("#questions [aria-label='high priority']").is_displayed()
        assert not page.scrolls_sideways()
        assert page.one("#list").is_displayed()
        for prompt in ("averylongword", "Refund 5000"):
            page.open(prompt)
            assert not page.one("#list").is_displayed()
            assert not page.scrolls_sideways()
            footer = page.one("article .decision button:last-child").rect
            assert footer["y"] + footer["height"] <= narrow["height"]
            page.press("All questions")
            until(page.one("#list").is_displayed, "the list")
            assert not page.one("article").is_displayed()
        page.open("averylongword")
        page.press("Approve")
        page.says("article [role=status]", "You approved")
        page.press("All questions")
        until(page.one("#list").is_displayed, "the list after an answer")
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_thousand_open_questions_are_counted_and_drawn_in_parts(
    page: Page, running: Stack
) -> None:
    for number in range(10):
        body = {"graph": "many", "input": {"prompt": f"Batch {number}", "count": 100}}
        assert httpx.post(f"{running.api}/runs", json=body, timeout=60).status_code == 201
    page.says("#state", "1000 open questions")
    # After so many changes at once the page reads the whole list, maybe more than once.
    page.is_quiet()
    began = readings(page)
    respond(running.api, listed(running.api)[0]["id"], "bob", answer=True)
    page.says("#state", "999 open questions")
    asked(running.api, "One more?", graph="plain")
    page.says("#state", "1000 open questions")
    # The answer needs no reading, and the question one.
    assert readings(page) - began == 1
    page.driver.refresh()
    page.says("#questions a", "Batch")
    first = page.driver.execute_script(
        "return performance.getEntriesByName('first questions')[0].startTime"
    )
    page.says("#state", "1000 open questions")
    page.says("#tabs", "Open 1000")
    read = page.driver.execute_script(READ)
    assert "render=html" in read[1], "the first question is opened before all are read"
    assert len(page.all("#questions a")) == 100
    page.press("Show more")
    until(lambda: len(page.all("#questions a")) == 200, "200 questions")
    stall = page.driver.execute_async_script(SCROLL)
    page.one("#by-text").send_keys("batch 0042")
    until(lambda: len(page.all("#questions a")) == 10, "a question of each batch")
    # The stream reports all changes: the page asks for nothing while nothing happens.
    page.is_quiet()
    print(f"first questions after {first:.0f} ms, longest stall {stall:.0f} ms")
    # An idle machine shows them within 300 ms, and no frame takes longer than 50 ms.
    assert first < 2000
    assert stall < 500

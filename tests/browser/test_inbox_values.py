"""The inbox shows values exactly, and a value that a person sends back untouched is not an edit."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from dev_stack import Stack, until
from inbox_page import Page, asked, ended, question_of, respond

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240), pytest.mark.xdist_group("inbox")]

BESIDE = "return arguments[0].scrollWidth > arguments[0].clientWidth"
"""Returns whether a part of an element is cut off at its side."""

RECORD = "1161888007138312193"
COPY = "getSelection().selectAllChildren(arguments[0]); return getSelection().toString()"
# The effect of keys in a picker depends on the reader's own language.
TYPE = """
arguments[0].value = arguments[1];
arguments[0].dispatchEvent(new Event("input", {bubbles: true}));
"""


def answer_to(api: str, id_: str) -> Any:
    return httpx.get(f"{api}/interrupts/{id_}").json()["answer"]


def sent(page: Page, running: Stack, graph: str, prompt: str, button: str) -> Any:
    """Open a question, press a button without touching anything, and return the answer of the run."""
    id_ = question_of(running.api, asked(running.api, "go", graph=graph))
    page.open(prompt)
    page.press(button)
    page.says("article [role=status]", "You")
    return answer_to(running.api, id_)


def test_numbers_are_shown_as_they_are(page: Page, running: Stack) -> None:
    deleting = asked(running.api, "go", graph="deleting")
    page.open("Delete x?")
    page.says("article dl.values", RECORD)
    page.press("Approve")
    page.says("article [role=status]", "You approved delete")
    assert ended(running.api, deleting)["values"]["report"] == f"deleted {RECORD}"

    asked(running.api, "go", graph="opening")
    page.open(f"Account {RECORD}?")
    page.says("article dl.values", RECORD)

    stopping = asked(running.api, "go", graph="stopping")
    page.driver.get(f"{running.api}/inbox/runs/{stopping}")
    until(lambda: "".join(page.texts("#run dl.values")).count(RECORD) == 2, "the values of the run")


def test_the_thousands_of_an_amount_stand_apart_and_it_is_copied_and_heard_whole(
    page: Page, running: Stack
) -> None:
    body = {"graph": "paying", "input": {"payee": "Elm Ltd", "amount": -1234567}}
    run_id = httpx.post(f"{running.api}/runs", json=body).json()["run_id"]
    page.driver.get(f"{running.api}/inbox/runs/{run_id}")
    until(lambda: page.texts("#run .thousand") == ["234", "567"], "the thousands apart")
    assert page.driver.execute_script(COPY, page.one("#run dl.values")).count("-1234567") == 1
    tree = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    heard = [each["name"]["value"] for each in tree if each["role"]["value"] == "StaticText"]
    assert ("-1234567" in heard, "234" in heard) == (True, False)


def test_a_link_is_its_text_in_lists_and_has_its_address_on_the_page_of_the_question(
    page: Page, running: Stack
) -> None:
    run_id = asked(running.api, "[2.1](https://evil.example.com)", graph="linked")
    told = "Publish the notes of [2.1](https://evil.example.com)?"
    page.says("#questions .prompt", told)
    assert page.texts("#questions .prompt") == [told]
    page.says("article .prose", "(https://example.com/")
    page.driver.get(f"{running.api}/inbox/runs")
    page.says("td.told", told)
    page.driver.get(f"{running.api}/inbox/runs/{run_id}")
    page.says("#run li a", told)


def test_an_untouched_form_is_not_an_edit(page: Page, running: Stack) -> None:
    assert sent(page, running, "moving", "Move 12.50?", "Approve") == {"approved": True}
    assert sent(page, running, "stopping", "Before 'close'", "Go on") is None


def test_an_optional_part_in_which_nobody_filled_anything_is_left_out(
    page: Page, running: Stack
) -> None:
    id_ = question_of(running.api, asked(running.api, "Send what?", graph="posting"))
    page.open("Send what?")
    assert page.field("Country").get_attribute("value") == "DE"
    page.field("Article").send_keys("lamp")
    page.press("Send answer")
    page.says("article", "You answered")
    assert answer_to(running.api, id_) == {"article": "lamp", "sender": None}


def test_an_edit_sends_what_was_changed_and_all_else_as_it_was(page: Page, running: Stack) -> None:
    id_ = question_of(running.api, asked(running.api, "go", graph="moving"))
    page.open("Move 12.50?")
    page.press("Edit")
    assert page.field("Balance").get_attribute("value") == "12.50"
    assert page.field("Times").get_attribute("value") == "3"
    page.field("Note").clear()
    page.field("Note").send_keys("b")
    page.says(".changes", "a → b")
    page.press("Approve")
    page.says("article [role=status]", "with note b (was a),")
    edited = {"record_id": int(RECORD), "balance": "12.50", "note": "b", "times": 3}
    parts = [{"id": int(RECORD), "of": 1}]
    assert answer_to(running.api, id_) == {
        "approved": True,
        "arguments": {**edited, "parts": parts},
    }


def test_a_number_that_is_typed_arrives_digit_by_digit(page: Page, running: Stack) -> None:
    id_ = question_of(running.api, asked(running.api, "go", graph="moving"))
    page.open("Move 12.50?")
    page.press("Edit")
    for label, text in (("Record id", "9007199254740993"), ("Balance", "0.10")):
        page.field(label).clear()
        page.field(label).send_keys(text)
    page.press("Approve")
    page.says("article [role=status]", "record_id 9007199254740993 (was 1161888007138312193)")
    arguments = answer_to(running.api, id_)["arguments"]
    assert (arguments["record_id"], arguments["balance"]) == (9007199254740993, "0.10")


def test_a_number_in_json_that_somebody_writes_arrives_digit_by_digit(
    page: Page, running: Stack
) -> None:
    id_ = question_of(running.api, asked(running.api, "go", graph="moving"))
    page.open("Move 12.50?")
    page.press("Answer as JSON")
    arguments = (
        '"record_id": 9007199254740993, "balance": 1234567890123456789.89, "note": "b", "parts": []'
    )
    page.one("textarea.json").send_keys(f'{{"approved": true, "arguments": {{{arguments}}}}}')
    page.press("Send answer")
    page.says("article [role=status]", "You")
    kept = answer_to(running.api, id_)["arguments"]
    assert (kept["record_id"], kept["balance"]) == (9007199254740993, "1234567890123456789.89")


def test_a_time_is_picked_in_the_zone_of_the_reader_and_sent_with_one(
    page: Page, running: Stack
) -> None:
    page.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "America/New_York"})
    try:
        id_ = question_of(running.api, asked(running.api, "go", graph="shipping"))
        page.open("Ship?")
        page.press("Edit")
        # The call says 10:00:00.250+01:00, and a picker shows no zone.
        assert page.field("At").get_attribute("value").startswith("2026-12-24T04:00")
        page.says("article small", "In your own time zone.")
        page.driver.execute_script(TYPE, page.field("At"), "2026-12-24T05:30")
        page.says(".changes", "2026-12-24T10:30:00.000Z (Dec 24, 2026, 5:30")
        # A value that is changed back is not an edit.
        page.driver.execute_script(TYPE, page.field("At"), "2026-12-24T04:00:00")
        until(lambda: page.texts(".changes") == [""], "no changes")
        page.driver.execute_script(TYPE, page.field("At"), "")
        page.press("Approve")
        page.says(".fault", "At: enter a value")
        page.driver.execute_script(TYPE, page.field("At"), "2026-12-24T05:30")
        page.press("Approve")
        page.says("article [role=status]", "You approved ship with at 2026-12-24T10:30:00.000Z")
    finally:
        page.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
    sent = answer_to(running.api, id_)["arguments"]
    assert sent["at"] == "2026-12-24T10:30:00Z"
    assert (sent["gate"], sent["weight"]) == ("09:30:00+01:00", 3.141592653589793)


def test_a_breakpoint_gets_only_the_values_that_somebody_changed(
    page: Page, running: Stack
) -> None:
    id_ = question_of(running.api, asked(running.api, "go", graph="stopping"))
    page.open("Before 'close'")
    page.press("Edit")
    page.field("Tries").clear()
    page.field("Tries").send_keys("8")
    page.says(".changes", "7 → 8")
    page.press("Go on")
    page.says("article [role=status]", "You let the run go on with tries 8 (was 7)")
    assert answer_to(running.api, id_)["values"] == {"tries": 8}


def test_a_failed_node_is_skipped_without_a_patch_unless_somebody_writes_one(
    page: Page, running: Stack
) -> None:
    for typed in ("", "9"):
        id_ = question_of(running.api, asked(running.api, "go", graph="failing"))
        page.open("is closed")
        page.choose("Action", "skip")
        assert page.field("Tries").get_attribute("value") == ""
        page.field("Tries").send_keys(typed)
        page.press("Send answer")
        page.says("article [role=status]", "You answered")
        patch = {"patch": {"tries": int(typed)}} if typed else {}
        assert answer_to(running.api, id_) == {"action": "skip", **patch}


def test_a_form_shows_all_its_faults_at_once(page: Page, running: Stack) -> None:
    asked(running.api, "go", graph="moving")
    page.open("Move 12.50?")
    page.press("Edit")
    for label in ("Record id", "Balance"):
        page.field(label).clear()
        page.field(label).send_keys("many")
    page.press("Approve")
    page.says(".fault", "Record id: many is not a number")
    page.says(".fault", "Balance: many is not a number")
    page.sees_focus("Record id")


def test_a_changed_call_is_asked_again_and_approved_only_by_the_second_yes(
    page: Page, running: Stack
) -> None:
    run_id = asked(running.api, "go", graph="giving")
    page.open("Give 480 EUR?")
    page.says("article .preview", "20 EUR are left")
    page.press("Edit")
    page.field("Amount").clear()
    page.field("Amount").send_keys("90")
    page.press("Approve")
    page.says("article .outcome", "Nothing was done yet: this is asked again.")
    page.says("article .outcome", "480 → 90")
    page.says("article h2", "Give 90 EUR?")
    page.says("article .preview", "410 EUR are left")
    page.press("Decided")
    page.one("#questions[aria-busy=false]")
    # Earlier tests may have left other decided questions.
    assert not [text for text in page.texts("#questions a") if "Give" in text]
    page.press("Approve")
    page.says("article [role=status]", "You approved give")
    assert ended(running.api, run_id)["values"]["report"] == "gave 90"
    page.press("Open 0")
    page.press("Decided")
    page.says("#questions a", "Give 90 EUR?")
    assert not [text for text in page.texts("#questions a") if "480" in text]


def test_equal_calls_are_shown_each_with_its_arguments_and_its_run(
    page: Page, running: Stack
) -> None:
    runs = [asked(running.api, "go", graph="giving") for _ in range(2)]
    page.says("#state", "2 open questions")
    page.click("#grouped")
    page.press("Select all 2")
    page.press("Answer all selected…")
    page.says("article h2", "Answer 2 questions: giving")
    rows = page.texts("table.together tbody tr")
    assert len(rows) == 2
    assert all(any(f"{run_id}480" in row for row in rows) for run_id in runs)
    assert all("20 EUR are left" in row for row in rows)
    assert page.texts("table.together tfoot tr") == ["2 questions, in total960"]
    assert page.all("form.answer h3") == []
    # A phone shows each amount whole, with its name, and the table is not wider than the screen.
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        amounts = page.all("table.together td.number")
        assert [each.text for each in amounts] == ["480", "480", "960"]
        assert [each.get_attribute("data-name") for each in amounts] == ["Amount"] * 3
        assert not page.driver.execute_script(BESIDE, page.one("[aria-label='The questions']"))
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_vote_for_something_else_asks_those_again_who_have_voted(
    page: Page, running: Stack
) -> None:
    id_ = question_of(running.api, asked(running.api, "Grant it?", graph="granting"))
    respond(running.api, id_, "bob", {"approved": True, "amount": 90})
    page.open("Grant it?")
    page.says("article [aria-label=Votes] li", "bob")
    page.says("article [aria-label=Votes] dd", "90")
    page.field("Amount").clear()
    page.field("Amount").send_keys("200")
    page.press("Approve")
    page.says("article h2", "'ada' approves with another answer")
    page.says("article [role=status]", "It is one vote: 1 more person has to approve.")
    votes = "article [aria-label=Votes]"
    until(lambda: page.texts(f"{votes} .badge") == ["approved", "pending"], "one vote")
    page.says(f"{votes} li", "ada (you)")
    page.says(f"{votes} dd", "200")
    respond(running.api, id_, "bob", {"approved": True, "amount": 200})
    page.says("article [role=status]", "Approved by bob")
    assert answer_to(running.api, id_) == {"approved": True, "amount": 200}


def test_who_changes_nothing_agrees_with_the_votes_before(page: Page, running: Stack) -> None:
    id_ = question_of(running.api, asked(running.api, "Grant it?", graph="granting"))
    respond(running.api, id_, "bob", {"approved": True, "amount": 200})
    page.open("Grant it?")
    page.press("Approve")
    page.says("article", "You approved")
    assert answer_to(running.api, id_) == {"approved": True, "amount": 200}


def test_an_authors_own_answer_may_have_the_fields_of_one_to_a_call(
    page: Page, running: Stack
) -> None:
    id_ = question_of(running.api, asked(running.api, "Argue?", graph="arguing"))
    page.open("Argue?")
    page.field("Arguments").send_keys("for")
    page.press("Approve")
    page.says("article", "You approved")
    assert answer_to(running.api, id_) == {"approved": True, "arguments": "for"}


def test_an_answer_in_which_something_was_approved_is_no_yes_or_no(
    page: Page, running: Stack
) -> None:
    id_ = question_of(running.api, asked(running.api, "Which?", graph="counting"))
    page.open("Which?")
    page.field("Approved").send_keys("3")
    page.press("Send answer")
    page.says("article", "You answered")
    assert answer_to(running.api, id_) == {"approved": 3}


def test_a_value_cannot_hide_or_reorder_the_prompt(page: Page, running: Stack) -> None:
    payee, ref = "**Bob** 1\u202e0\n\n# Approved", "~~x~~"
    values = {"payee": payee, "amount": 1000000, "ref": ref}
    body = {"graph": "paying", "input": values}
    assert httpx.post(f"{running.api}/runs", json=body).status_code == 201
    page.open("1000000 EUR")
    asked = f"Pay {payee} the amount of 1000000 EUR. Reference: {ref}".replace("\u202e", "<U+202E>")
    page.says("article h2", " ".join(asked.split()))
    page.says("#questions .prompt", " ".join(asked.split()))
    page.says("article .prose", asked)
    assert "\u202e" not in "".join(page.texts("body"))
    assert page.all("article .prose :is(h3, h4, a, s, strong)") == []

"""The inbox in a real browser, over a whole stack: somebody sees what is asked, and answers."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from inbox_page import Page, asked, browser, ended, stack

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

HOSTILE = "<img src=x onerror=\"document.title='broken into'\"> & <b>bold</b>"
TOKEN = "a token for the test"


def test_a_question_is_seen_answered_and_gone(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        run_id = asked(running.api, "Pay 12 for A-7?")
        page = Page(driver, running.api)
        page.one("#name").send_keys("Grace Hoppér")
        page.press("Use")
        page.says("#state", "1 open question")
        page.says("#questions .time", "due in")
        page.open("Pay 12 for A-7?")
        page.says("dd", "whoever has refunds:approve")
        page.choose("How", "in cash")
        page.press("Approve")
        page.says(".fault", "Amount: enter a number")
        page.field("Amount").send_keys("501")
        page.press("Approve")
        page.says(".fault", "501")
        assert page.field("Amount").get_attribute("aria-invalid") == "true"
        page.field("Amount").clear()
        page.field("Amount").send_keys("12.5")
        page.one("#note").send_keys("as agreed")
        page.press("Approve")
        page.says("article", "You approved “Pay 12 for A-7?”")
        page.says("#state", "No open questions")
        view = ended(running.api, run_id)

    assert view["values"]["decision"] == {
        "approved": True,
        "how": "in cash",
        "amount": 12.5,
        "note": None,
        "details": {"iban": "DE02"},
    }


def test_what_a_run_says_stays_text(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        asked(running.api, HOSTILE)
        page = Page(driver, running.api)
        page.open(HOSTILE)
        page.says("dd", "onerror")
        title, pictures = driver.title, page.all("main img, main b")

    assert (title, pictures) == ("Inbox · Abeyance", [])


def test_what_turns_the_direction_of_a_text_is_shown_as_its_code_point(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        asked(running.api, "Pay \u202e0052 rosivda ot?")
        page = Page(driver, running.api)
        page.open("Pay <U+202E>0052 rosivda ot?")
        page.says("#questions a", "Pay <U+202E>0052 rosivda ot?")


def test_a_link_that_names_nothing_is_told_so(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        page = Page(driver, running.api)
        page.says("#state", "No open questions")
        driver.get(f"{running.api}/inbox#%")
        driver.refresh()
        page.says("article [role=alert]", "There is no interrupt '%'")
        page.says("#state", "No open questions")


def test_an_answer_may_be_written_as_json_and_one_from_elsewhere_is_told(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        run_id = asked(running.api, "Pay again?")
        page = Page(driver, running.api)
        page.open("Pay again?")
        page.click("details.more summary")
        page.click("details.more input[type=checkbox]")
        area = page.one("textarea.json")
        answer = {"approved": False, "how": "by bank", "amount": 0}
        area.send_keys("{")
        page.press("Send answer")
        page.says(".fault", "invalid JSON")
        area.clear()
        area.send_keys('{"approved": true, "how": "by bank", "amount": 12345678901234567890}')
        page.press("Send answer")
        page.says("article", "12345678901234567890 is greater than the maximum of 500")
        answered = httpx.post(
            f"{running.api}/runs/{run_id}/respond",
            json={"response": answer},
            headers={"X-Abeyance-Principal": "ada"},
        )
        assert answered.status_code == 200
        page.says("article [role=status]", "This question is answered by ada")


def test_where_tokens_are_needed_the_page_has_its_reader_sign_in(tmp_path: Path) -> None:
    grant = {"subject": "ada", "sha256": sha256(TOKEN.encode()).hexdigest(), "capabilities": ["*"]}
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([grant]))
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with (
        stack(tmp_path, ABEYANCE_TOKENS_FILE=str(tokens)) as running,
        browser(tmp_path / "profile") as driver,
    ):
        run_id = asked(running.api, "Pay Ada?", **bearer)
        interrupt = httpx.get(f"{running.api}/runs/{run_id}/interrupts", headers=bearer).json()
        page = Page(driver, running.api)
        driver.get(f"{running.api}/inbox#{interrupt['items'][0]['id']}")
        page.one("#token").send_keys(TOKEN)
        page.press("Sign in")
        page.says("#me", "ada")
        page.says("article h2", "Pay Ada?")
        page.choose("How", "by bank")
        page.field("Amount").send_keys("0")
        page.press("Reject")
        page.says("article", "You rejected “Pay Ada?”")
        view = ended(running.api, run_id, **bearer)

    assert view["values"]["decision"]["approved"] is False

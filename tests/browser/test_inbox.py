"""The inbox in a real browser, over a whole stack: a person sees a question, and answers it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from inbox_page import Page, asked, browser, ended, stack

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


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


def test_a_link_to_an_unknown_question_says_so(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        page = Page(driver, running.api)
        page.says("#state", "No open questions")
        driver.get(f"{running.api}/inbox#%")
        driver.refresh()
        page.says("article [role=alert]", "There is no interrupt '%'")
        page.says("#state", "No open questions")


def test_an_answer_may_be_written_as_json_and_another_answer_is_shown(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        run_id = asked(running.api, "Pay again?")
        page = Page(driver, running.api)
        page.open("Pay again?")
        page.press("Answer as JSON")
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
        page.says("article [role=status]", "Rejected by ada")

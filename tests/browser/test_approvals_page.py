"""The report of approvals in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from inbox_page import Page, asked, browser, ended, question_of, respond, stack

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def test_the_report_shows_what_was_settled_with_columns_that_one_picks_and_their_sum(
    tmp_path: Path,
) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        for amount, approved in ((12.1, True), (0.2, True), (5, False)):
            run_id = asked(running.api, f"Pay {amount} for A-7?")
            answer = {"approved": approved, "how": "by bank", "amount": amount}
            respond(running.api, question_of(running.api, run_id), "ada", answer)
            ended(running.api, run_id)
        page = Page(driver, running.api, "/inbox/approvals?fields=answer.amount&outcome=approved")
        page.says("#state", "2 rows")
        assert page.texts("th")[-1] == "Amount"
        assert page.texts("td.number") == ["0.2", "12.1"]
        page.one("[name=sum]").send_keys("answer.amount")
        page.press("Show")
        page.says(".sum", "Sum of Amount: 12.3 in 2 rows")
        assert "sum=answer.amount" in driver.current_url
        page.says("td a", "Pay 12.1 for A-7?")
        page.one("[name=fields]").send_keys(",iban")
        page.press("Show")
        page.says("th[title='reason.iban']", "Iban")
        page.says(".warning", "No row here has reason.iban.")
        page.one("[name=fields]").send_keys("..")
        page.press("Show")
        page.says("[role=alert]", "reason.iban..")

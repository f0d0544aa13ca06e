"""The report of approvals in a real browser."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pytest
from dev_stack import Stack, until
from inbox_page import Page, asked, browser, ended, question_of, respond, stack

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

_MORNING = 11
TAB = "\ue004"
ENTER = "\ue007"


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


def test_a_column_that_only_the_first_rows_have_is_not_called_unknown(
    page: Page, running: Stack
) -> None:
    body = {"graph": "many", "input": {"prompt": "One of many", "count": 60}}
    run_id = httpx.post(f"{running.api}/runs", json=body).json()["run_id"]
    path = f"{running.api}/runs/{run_id}"
    until(lambda: len(httpx.get(f"{path}/interrupts").json()["items"]) == 60, "60 questions")
    answers = {each["id"]: True for each in httpx.get(f"{path}/interrupts").json()["items"]}
    httpx.post(f"{path}/respond", json={"responses": answers}).raise_for_status()
    ended(running.api, run_id)
    run_id = asked(running.api, "Move", graph="moving")
    respond(running.api, question_of(running.api, run_id), "ada", {"approved": True})
    ended(running.api, run_id)

    page.driver.get(f"{running.api}/inbox/approvals?fields=reason.arguments.note,payload.x")
    page.says(".warning", "No row here has payload.x.")
    page.press("Show more")
    until(lambda: len(page.all("tbody tr")) > 60, "more rows")

    assert page.texts(".warning") == ["No row here has payload.x."]


def test_a_time_is_chosen_by_its_name_and_is_of_the_readers_own_zone(tmp_path: Path) -> None:
    def dates() -> tuple[str, str]:
        first, last = (page.one(f"[name={name}]").get_attribute("value") for name in ("from", "to"))
        return first, last

    # This zone has another date than UTC, and no new day begins there within the hour.
    zone = "Etc/GMT+12" if datetime.now(UTC).hour < _MORNING else "Etc/GMT-14"
    today = datetime.now(ZoneInfo(zone)).date()

    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        run_id = asked(running.api, "Pay?")
        answer = {"approved": True, "how": "by bank", "amount": 1}
        respond(running.api, question_of(running.api, run_id), "ada", answer)
        ended(running.api, run_id)
        driver.set_window_size(1200, 900)
        driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": zone})
        page = Page(driver, running.api, "/inbox/approvals")
        page.says("#state", "1 row")
        assert page.texts(".periods [aria-pressed=true]") == []
        page.press("Today")
        page.says("#state", "1 row")
        page.says(".periods [aria-pressed=true]", "Today")
        assert dates() == (str(today), str(today))
        # The keyboard chooses a time too, and the address of the page keeps it.
        page.keys(TAB, TAB)
        page.keys(TAB)
        page.sees_focus("Last month")
        page.keys(ENTER)
        page.says("#state", "0 rows")
        first, last = map(date.fromisoformat, dates())
        assert first.day == 1
        assert (first.year, first.month) == (last.year, last.month)
        assert (today.replace(day=1) - last).days == 1
        page.driver.refresh()
        page.says(".periods [aria-pressed=true]", "Last month")
        page.says("#state", "0 rows")
        page.press("This quarter")
        page.says("#state", "1 row")
        first, last = map(date.fromisoformat, dates())
        assert (first.day, first.month % 3, last) == (1, 1, today)
        page.one("[name=from]").clear()
        assert page.texts(".periods [aria-pressed=true]") == []
        # On a phone no name of a time is cut off, and nothing is wider than the screen.
        size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert not page.scrolls_sideways()
        for each in page.all(".periods button"):
            assert 0 <= each.rect["x"] <= 390 - each.rect["width"]

"""The page of remembered approvals in a real browser."""

from __future__ import annotations

import httpx
import pytest
from dev_stack import Stack
from inbox_page import Page, asked, ended, remembered

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240), pytest.mark.xdist_group("inbox")]


def test_a_grant_is_shown_with_what_it_covers_and_its_calls_until_it_is_revoked(
    page: Page, running: Stack
) -> None:
    ended(running.api, remembered(running.api))
    page.driver.get(f"{running.api}/inbox/grants")
    page.says("#state", "1 grant")
    page.says(".grant h2", "top_up")
    page.says(".grant .badge", "20 of 20 uses left")
    page.says(".grant", "No call has run yet")
    covered = httpx.post(f"{running.api}/runs", json={"graph": "topping", "input": {}})
    run_id = str(covered.json()["run_id"])
    ended(running.api, run_id)
    # The page follows what runs.
    page.says(".grant .badge", "19 of 20 uses left")
    page.says(".grant li a", run_id)
    shown = dict(zip(page.texts(".grant dt"), page.texts(".grant dd"), strict=False))
    assert (shown["Account"], shown["Amount"]) == ("c-17", "less than 200")
    assert shown["Where"] == "in every run of topping"
    assert "you" in shown["Approved"]
    page.press("Revoke…")
    page.says("dialog", "Calls that it covers are asked about again.")
    page.press("Revoke")
    page.says("#told", "The grant for top_up is revoked")
    page.says("#state", "0 grants")
    page.sees_focus("The grant for top_up is revoked")
    asked(running.api, "go", graph="topping")

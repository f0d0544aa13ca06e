"""The page of remembered approvals in a real browser."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from dev_stack import Stack
from inbox_page import Page, asked, browser, ended, remembered, stack

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
    # The page updates itself.
    page.says(".grant .badge", "19 of 20 uses left")
    page.says(".grant li a", run_id)
    shown = dict(zip(page.texts(".grant dt"), page.texts(".grant dd"), strict=False))
    assert (shown["Account"], shown["Amount"]) == ("c-17", "less than 200")
    assert shown["Where"] == "in every run of topping"
    assert "you" in shown["Approved"]
    columns = "fields=reason.arguments.amount&sum=reason.arguments.amount"
    page.driver.get(f"{running.api}/inbox/approvals?outcome=granted&{columns}")
    page.says("td a", "Top up c-17?")
    page.says("td small a", "under your grant for top_up")
    page.says(".sum", "Sum of Amount: 50 in 1 row")
    assert page.texts("td.number") == ["50"]
    page.driver.get(f"{running.api}/inbox/approvals?graph=topping&outcome=approved")
    page.says("td dd", "for 8h, in every run, 20 calls")
    page.driver.back()
    page.driver.get(f"{running.api}/inbox/runs/{run_id}")
    page.click("section[aria-label=Conversations] summary")
    page.says("ol.transcript", "ran unasked, under a grant of ada")
    page.driver.back()
    page.click("td small a")
    page.says(".grant h2", "top_up")
    page.press("Revoke…")
    page.says("dialog", "Calls that it covers are asked about again.")
    page.press("Revoke")
    page.says("#told", "The grant for top_up is revoked")
    page.says("#state", "0 grants")
    page.sees_focus("The grant for top_up is revoked")
    page.press("Show those that are over too")
    page.says(".grant .badge", "revoked by you")
    page.press("Hide those that are over")
    page.says("#state", "0 grants")
    asked(running.api, "go", graph="topping")


def test_an_approver_has_the_next_calls_approved_too_and_finds_that_among_the_grants(
    tmp_path: Path,
) -> None:
    token = "a token for the test"
    may = ["runs:start", "runs:read", "runs:respond", "topup:approve"]
    person = {
        "subject": "ada",
        "sha256": sha256(token.encode()).hexdigest(),
        "capabilities": may,
    }
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([person]))
    with (
        stack(tmp_path, graphs="desk.py", ABEYANCE_TOKENS_FILE=str(tokens)) as running,
        browser(tmp_path / "profile") as driver,
    ):
        bearer = {"Authorization": f"Bearer {token}"}
        asked(running.api, "go", graph="topping", **bearer)
        page = Page(driver, running.api, "/inbox?tab=open")
        page.one("#token").send_keys(token)
        page.press("Sign in")
        page.says("article h2", "Top up c-17?")
        page.says("summary", "Approve, and the next ones for 8 hours…")
        page.click("details:has(#remember-for) summary")
        page.says("details:has(#remember-for)", "the same account and amount below 200")
        page.one("#remember-uses").send_keys("3")
        page.press("Approve and remember")
        page.says("article", "You approved and remembered top_up")
        page.click("article a[href='/inbox/grants']")
        page.says(".grant .badge", "3 of 3 uses left")

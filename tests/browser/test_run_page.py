"""The page of a run in a real browser: its status, its questions, its controls, and its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from dev_stack import GRAPHS, Place, Stack, until
from inbox_page import Page, asked, browser, stack

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


# The effect of typing depends on the order of day, month and year in the reader's own language.
CHOOSE_A_DAY = """
const field = document.querySelector(`[data-stay=${arguments[0]}]`);
field.value = arguments[1];
field.dispatchEvent(new Event("change"));
"""


def test_the_page_of_a_run_shows_where_it_stands_and_follows_it(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        run_id = asked(running.api, "Pay 12 for A-7?")
        page = Page(driver, running.api, f"/inbox/runs/{run_id}")
        page.says("#state", "awaiting input")
        page.says(".picture .waiting", "decide")
        page.says("li a", "Pay 12 for A-7?")
        answer = {"approved": False, "how": "by bank", "amount": 0}
        answered = httpx.post(f"{running.api}/runs/{run_id}/respond", json={"response": answer})
        assert answered.status_code == 200
        page.says("#state", "completed")
        page.says(".picture .done", "END")
        page.says(".spans", "waited")


def test_the_picture_of_a_run_shows_the_tools_of_its_agents_and_can_be_zoomed(
    tmp_path: Path,
) -> None:
    with stack(tmp_path, graphs="desk.py") as running, browser(tmp_path / "profile") as driver:
        run_id = asked(running.api, "pay", graph="payments")
        page = Page(driver, running.api, f"/inbox/runs/{run_id}")
        page.says(".picture .inner.waiting", "refund")
        width = "return document.querySelector('.picture svg').getBoundingClientRect().width"
        fitting = driver.execute_script(width)
        page.click("#zoom-in")
        assert driver.execute_script(width) > fitting
        page.click("#maximize")
        assert driver.execute_script(width) == fitting


def test_all_runs_are_listed_searched_and_filtered(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        first = asked(running.api, "Pay 12 for A-7?")
        second = asked(running.api, "Pay 13 for A-8?")
        page = Page(driver, running.api, "/inbox/runs")
        page.says("#state", "2 runs")
        page.says("#runs td", "Pay 12 for A-7?")
        httpx.post(f"{running.api}/runs/{first}/cancel", json={})
        page.says("#runs .badge", "cancelled")
        page.click("[data-stay=status] option[value=cancelled]")
        page.says("#state", "1 run")
        assert driver.current_url.endswith("?status=cancelled")
        driver.get(f"{running.api}/inbox/runs?q={second}")
        page.says("#state", "1 run")
        today = driver.execute_script("return new Date().toLocaleDateString('sv')")
        driver.get(f"{running.api}/inbox/runs?from={today}&to={today}")
        page.says("#state", "2 runs")
        driver.get(f"{running.api}/inbox/runs?q=asking&to={today}")
        page.says("#state", "2 runs")
        driver.execute_script(CHOOSE_A_DAY, "to", "2026-01-01")
        page.says("#runs", "No run passes the filters.")
        assert driver.current_url.endswith("?q=asking&to=2026-01-01")
        driver.get(f"{running.api}/inbox/runs?to=then")
        page.says("#state", "2 runs")
        page.click("#runs a")
        page.says("h1", second)
        assert not page.scrolls_sideways()


def test_a_run_is_paused_resumed_sent_a_message_and_cancelled(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        run_id = asked(running.api, "Pay?")
        page = Page(driver, running.api, f"/inbox/runs/{run_id}")
        page.click("details.menu summary")
        driver.set_network_conditions(offline=True, latency=0, throughput=0)
        page.press("Pause")
        page.says("details.menu [role=alert]", "The service cannot be reached")
        driver.delete_network_conditions()
        # The failed request is not a fault of the page. Reading the log clears it.
        driver.get_log("browser")
        httpx.post(f"{running.api}/runs/{run_id}/messages", json={"text": "Well?"})
        page.says("section p", "1 unread")
        page.says("details.menu [role=alert]", "The service cannot be reached")
        page.press("Pause")
        page.says("#state", "paused")
        page.says(".trouble", "Paused by local")
        page.press("Resume")
        page.says("#state", "awaiting input")
        page.one("#message").send_keys("in cash, please")
        page.press("Send message")
        page.says("section p", "2 unread")
        until(lambda: not page.one("#message").get_attribute("value"), "an empty field")
        if not page.one("details.menu").get_attribute("open"):
            page.click("details.menu summary")
        page.press("Cancel the run…")
        page.says("dialog", "What it has done stays done.")
        page.press("Cancel the run")
        page.says("#state", "cancelled")
        page.says(".trouble", "This run was cancelled by local.")
        page.press("Retry")
        page.says("dialog", "It goes on from where it ended")
        page.keys("\ue007")
        page.says("#state", "awaiting input")


def test_a_run_is_rewound_once_it_was_shown_what_that_discards(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        run_id = asked(running.api, "Pay 12 for A-7?")
        answer = {"approved": False, "how": "by bank", "amount": 0}
        httpx.post(f"{running.api}/runs/{run_id}/respond", json={"response": answer})
        page = Page(driver, running.api, f"/inbox/runs/{run_id}")
        page.says("#state", "completed")
        page.one("details[data-part=rewind] summary").click()
        page.says("#rewind-to", "Pay 12 for A-7? (answered)")
        page.one("#rewind-to option:last-child").click()
        page.press("Show what would be discarded")
        page.says("details[data-part=rewind] li", "Interrupt answered")
        page.press("Rewind the run")
        page.says("#state", "awaiting input")
        page.says("li a", "Pay 12 for A-7?")


@contextmanager
def guarded(folder: Path) -> Iterator[tuple[Stack, dict[str, str]]]:
    """Yield a stack of `dev_stack` whose runs ada controls and rita only reads, and ada's header."""
    capabilities = {"ada": ["runs:start", "runs:control"], "rita": []}
    tokens = [
        {
            "subject": name,
            "sha256": sha256(f"token of {name}".encode()).hexdigest(),
            "capabilities": ["runs:read", *more],
        }
        for name, more in capabilities.items()
    ]
    (folder / "tokens.json").write_text(json.dumps(tokens))
    place = Place(folder)
    patient = '@graph.node(backoff=Backoff(first="1h", most="1h"))\ndef double'
    (folder / "sums.py").write_text(GRAPHS.replace("@graph.node\ndef double", patient))
    place.environment = {
        **place.environment,
        "ABEYANCE_TOKENS_FILE": str(folder / "tokens.json"),
    }
    with place.stack() as running:
        yield running, {"Authorization": "Bearer token of ada"}


def signed_in(driver: Any, api: str, who: str, path: str) -> Page:
    driver.delete_all_cookies()
    page = Page(driver, api, path)
    page.one("#token").send_keys(f"token of {who}")
    page.press("Sign in")
    return page


def started(
    api: str, until: str, headers: dict[str, str], wait: str = "PT20S", **values: Any
) -> str:
    body = {"graph": "sum", "input": values}
    run_id = str(httpx.post(f"{api}/runs", json=body, headers=headers).json()["run_id"])
    query = {"wait": wait, "until": until}
    httpx.get(f"{api}/runs/{run_id}", params=query, headers=headers, timeout=30)
    return run_id


def test_a_run_that_failed_is_blocked_or_is_tried_again_says_which_and_why_and_what_one_may_do(
    tmp_path: Path,
) -> None:
    with guarded(tmp_path) as (running, ada), browser(tmp_path / "profile") as driver:
        failed = started(running.api, "failed", ada, amount=-1)
        blocked = started(running.api, "blocked", ada, label="export")

        page = signed_in(driver, running.api, "ada", f"/inbox/runs/{failed}")
        page.says(".trouble", "This run failed in double.")
        page.says(".trouble", "nothing to double in -1")
        page.press("Rewind…")
        page.says("#rewind-to", "the start of the run")
        page.sees_focus("Rewind the run to")
        page.press("Retry")
        page.says("dialog", "finished steps and answers are kept")
        page.keys("\ue007")
        page.says(".spans", "double")
        page.says(".trouble", "nothing to double in -1")

        page.driver.get(f"{running.api}/inbox/runs/{blocked}")
        page.says(".trouble", "double is blocked since")
        page.says(".trouble", "(extra_missing)")
        page.says(".trouble", "boto3")
        page.press("Migrate")
        page.says("dialog", "If it does not fit, nothing changes, and the reason is shown.")
        page.press("Back")

        tried = started(running.api, "completed", ada, label="bank", wait="PT0.1S")
        page.driver.get(f"{running.api}/inbox/runs/{tried}")
        page.says(".trouble", "double failed once, and runs again in")
        page.says(".trouble", "ConnectionError: the bank is away")
        # A node that will run again is not done.
        page.says(".picture .failed", "double")

        page = signed_in(driver, running.api, "rita", f"/inbox/runs/{failed}")
        page.says(".trouble", "This run failed in double.")
        assert page.texts("#run button:not(.zoom button)") == []
        page.driver.get(f"{running.api}/inbox/runs/{blocked}")
        page.says(".trouble", "double is blocked since")
        assert page.texts("#run button:not(.zoom button)") == []

        # The blocked run goes on by itself once its code can run.
        (tmp_path / "installed").touch()
        page.says("#state", "awaiting input")
        assert page.texts(".trouble") == []

"""Attacks by pages of other origins and of names that resolve to this machine, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from chromium import chromium
from dev_stack import Place, Stack, until, words_of
from other_site import other_site
from ports import listening

from abeyance.dev.ports import CLOSED_TO_BROWSERS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

EVIL = "evil.test"
REBINDING = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"
RUN = "refund"
ANSWER = {"response": 5, "principal": {"subject": "ceo", "capabilities": ["*"]}}
OF_TEMPORAL = f"/api/v1/namespaces/default/workflows/{RUN}"
CALLS = [
    [f"{OF_TEMPORAL}/update/respond", json.dumps({"request": {"input": {"args": [ANSWER]}}})],
    [f"{OF_TEMPORAL}/signal/cancel", json.dumps({"input": [{}]})],
    [f"{OF_TEMPORAL}/terminate", "{}"],
    [f"/runs/{RUN}/respond", '{"response": 5}'],
    [f"/runs/{RUN}/cancel", "{}"],
]
# Makes all calls at each port, as a page may without a preflight request. Returns what the page could
# read of each answer.
ATTACK = """
const [bases, calls, mode, done] = arguments;
const csrf = document.cookie.match(/_csrf=(\\w+)/)?.[1] || '';
const headers = {'Content-Type': 'text/plain', 'X-CSRF-Token': csrf};
Promise.all(bases.flatMap((base) => calls.map(async ([path, body]) => {
  try {
    const options = mode === 'no-cors' ? {mode} : {headers};
    const answer = await fetch(base + path, {method: 'POST', body, ...options});
    return [base + path, answer.type === 'opaque' ? 'opaque' : answer.status];
  } catch (error) {
    return [base + path, 'nothing'];
  }
}))).then((answers) => done(Object.fromEntries(answers)));
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Place(tmp_path).stack("--in-memory") as running:
        running.start(RUN, amount=2)
        yield running


def is_untouched(stack: Stack) -> bool:
    view = httpx.get(f"{stack.api}/runs/{RUN}", timeout=30).json()
    return (view["status"], len(view["interrupts"])) == ("awaiting-input", 1)


def test_a_page_of_another_origin_can_call_nothing(stack: Stack, tmp_path: Path) -> None:
    with other_site() as port, chromium(tmp_path / "profile", REBINDING) as driver:
        bases = [f"http://127.0.0.1:{each}" for each in sorted(listening(stack.processes()))]
        for page in (f"http://127.0.0.1:{port}", f"http://{EVIL}:{port}"):
            driver.get(page)
            assert driver.title == "elsewhere"
            for mode in ("no-cors", "cors"):
                answers = driver.execute_async_script(ATTACK, bases, CALLS, mode)
                assert {*answers.values()} <= {"opaque", "nothing"}

    assert is_untouched(stack)


def fault(driver: Any, url: str) -> str | None:
    """Return the browser's code of why it shows no page of this address; None if it shows one."""
    driver.get(url)
    found = driver.execute_script("return document.querySelector('.error-code')?.textContent")
    return None if found is None else str(found)


def test_a_page_under_a_name_that_leads_here_can_call_nothing(stack: Stack, tmp_path: Path) -> None:
    words = words_of(stack.part("start-dev"))
    of_temporal = {int(words[words.index(each) + 1]) for each in ("--http-port", "--metrics-port")}
    ours = {int(stack.api.rpartition(":")[2])}
    ports = listening(stack.processes())
    faults: dict[int, str | None] = {}
    with chromium(tmp_path / "profile", REBINDING) as driver:
        for port in ports:
            page = f"http://{EVIL}:{port}"
            faults[port] = fault(driver, f"{page}/")
            if faults[port] is None:
                answers = driver.execute_async_script(ATTACK, [page], CALLS, "same-origin")
                assert {*answers.values()} == {403}

    assert {port for port, found in faults.items() if found is None} == ours
    assert {faults[port] for port in of_temporal} == {"ERR_UNSAFE_PORT"}
    # The other ports speak gRPC.
    assert {faults[port] for port in ports - ours - of_temporal} == {"ERR_INVALID_HTTP_RESPONSE"}
    assert is_untouched(stack)


def test_a_browser_connects_to_none_of_the_ports_that_are_closed_to_it(tmp_path: Path) -> None:
    with chromium(tmp_path / "profile") as driver:
        faults = {port: fault(driver, f"http://127.0.0.1:{port}/") for port in CLOSED_TO_BROWSERS}

    assert {*faults.values()} == {"ERR_UNSAFE_PORT"}, faults


def test_temporals_ui_shows_a_run_and_its_pages_can_change_it(tmp_path: Path) -> None:
    with (
        Place(tmp_path).stack("--in-memory", "--ui") as stack,
        chromium(tmp_path / "profile") as driver,
    ):
        stack.start(RUN, amount=2)
        driver.get(f"{stack.ui}/namespaces/default/workflows/{RUN}")
        until(lambda: "User Metadata" in driver.page_source, "the page of the run", seconds=30)
        answers = driver.execute_async_script(
            ATTACK, [stack.ui], [[f"{OF_TEMPORAL}/signal/pause", "{}"]], "same-origin"
        )

        assert {*answers.values()} == {200}
        assert stack.view(RUN, "paused")["paused"]

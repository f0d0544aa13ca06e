"""One stack with the graphs of `desk.py`, and the inbox on it in one browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from dev_stack import Stack, until
from inbox_page import Page, browser, stack


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with stack(tmp_path_factory.mktemp("stack"), graphs="desk.py") as started:
        yield started


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def page(driver: Any, running: Stack) -> Iterator[Page]:
    """The inbox of ada on a large screen. After the test all waiting runs are cancelled."""
    driver.set_window_size(1200, 900)
    opened = Page(driver, running.api)
    driver.execute_script("sessionStorage.setItem('name', 'ada')")
    driver.refresh()
    opened.says("#state", "No open questions")
    yield opened
    driver.get("about:blank")
    with httpx.Client(base_url=running.api, timeout=30) as http:
        runs = http.get("/runs?status=awaiting-input&limit=200").json()["items"]
        for run in runs:
            http.post(f"/runs/{run['run_id']}/cancel", json={})
        until(lambda: not http.get("/interrupts").json()["items"], "an empty inbox")
        until(lambda: not http.get("/interrupts?status=held").json()["items"], "nothing held")

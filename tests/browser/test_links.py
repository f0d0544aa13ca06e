"""The page of a personal link in a real browser."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from chromium import chromium
from dev_stack import until
from sample_graphs import State
from stack import app_for, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import START, Graph
from abeyance.notifications.links import PersonalLink

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

KEY = "k" * 40
FILE = """\
links: {base: "https://abeyance.example.com", key_env: LINK_KEY}
people: {ada: {}}
"""


def asking(response: Any) -> Graph:
    graph = Graph("asking", state=State)
    graph.interrupt("approve", prompt="Pay?", response=response, assignees=["ada"])
    graph.edge(START, "approve")
    return graph


async def answered(
    temporal: TemporalClient,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    response: Any,
    *,
    label: str,
    typed: str = "",
) -> tuple[str, str, list[str]]:
    """What a page says after somebody has pressed a button, what it says when it is opened again, and
    the faults that the browser logged.
    """
    monkeypatch.setenv("LINK_KEY", KEY)
    file = folder / "notifications.yaml"
    file.write_text(FILE, encoding="utf-8")
    site = Site(temporal, asking(response))
    async with site.worker(), served(app_for(site, notifications=file)) as api:
        run_id = await site.start()
        (question,) = (await site.until(run_id, "awaiting-input")).interrupts
        view = question.model_dump(mode="json")
        made = PersonalLink.of(view, "ada", now=datetime.now(UTC))
        url = f"{api.url}/links/{made.token(KEY.encode())}"

        def drive() -> tuple[str, str, list[str]]:
            with chromium(folder / "profile") as driver:

                def one(selector: str, text: str = "") -> Any:
                    found = driver.find_elements("css selector", selector)
                    return next((each for each in found if text in each.text), None)

                driver.get(url)
                if typed:
                    until(lambda: one("form textarea, form input"), "a field").send_keys(typed)
                until(lambda: one("form button", label), label).click()
                until(lambda: one("#status", "Your answer"), "an answer")
                first = one("#status").text
                driver.refresh()
                again = until(lambda: one("#status", "You have"), "the page of an answer").text
                logged = driver.get_log("browser")
            return first, again, [each["message"] for each in logged if each["level"] == "SEVERE"]

        said = await asyncio.to_thread(drive)
        await site.ended(run_id)
    return said


@pytest.mark.parametrize(
    ("response", "answer"),
    [(bool, {"label": "Approve"}), (str, {"label": "Send answer", "typed": "yes"})],
)
async def test_somebody_answers_by_a_link_and_sees_that_when_it_is_opened_again(
    temporal: TemporalClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    response: Any,
    answer: dict[str, str],
) -> None:
    first, again, faults = await answered(temporal, tmp_path, monkeypatch, response, **answer)

    assert first == "Your answer was accepted."
    assert again.startswith("You have answered this at ")
    assert faults == []

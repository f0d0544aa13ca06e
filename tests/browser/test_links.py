"""The page of a personal link in a real browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from inbox_page import Page, browser
from sample_graphs import State
from scripted_agents import Script, answered, desk
from stack import PLAIN, app_for, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import START, Agent, Graph, tool
from abeyance.notifications.links import PersonalLink

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

T = TypeVar("T")

KEY = "k" * 40
FILE = """\
links: {base: "https://abeyance.example.com", key_env: LINK_KEY}
people: {ada: {}}
"""


async def would_pay(amount: int) -> dict[str, Any]:
    """Say what a refund would do."""
    return {"summary": f"{500 - amount} are left"}


@tool(approve=True, assignees=["ada"], preview=would_pay)
async def refund(amount: int) -> str:
    """Pay money back."""
    return f"paid {amount}"


def asking(response: Any, **terms: Any) -> Graph:
    if response is refund:
        said = Script([("refund", {"amount": 480})], answered)
        return desk(Agent("clerk", model=said, tools=[refund]))
    graph = Graph("asking", state=State)
    reason = {"amount": 480, "order": "A-7"}
    graph.interrupt(
        "approve", prompt="Pay?", reason=reason, response=response, assignees=["ada"], **terms
    )
    graph.edge(START, "approve")
    return graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """A run that asks ada, and the URL of the API that serves a link to its question."""

    site: Site
    api: str
    run_id: str
    question: Mapping[str, Any]
    folder: Path

    @property
    def path(self) -> str:
        made = PersonalLink.of(self.question, "ada", now=datetime.now(UTC))
        return f"/links/{made.token(KEY.encode())}"

    async def seen(self, look: Callable[[Page], T]) -> T:
        """Follow the link in a browser, and return what `look` does. The browser may log no fault."""

        def drive() -> T:
            with browser(self.folder / "profile") as driver:
                return look(Page(driver, self.api, self.path))

        return await asyncio.to_thread(drive)

    async def answered(self) -> Mapping[str, Any]:
        await self.site.ended(self.run_id)
        (entry,) = await self.site.client.run(self.run_id).interrupts(status="all")
        found: dict[str, Any] = entry.model_dump(mode="json")
        return found


@asynccontextmanager
async def linked(
    temporal: TemporalClient,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    response: Any,
    **terms: Any,
) -> AsyncIterator[Linked]:
    monkeypatch.setenv("LINK_KEY", KEY)
    file = folder / "notifications.yaml"
    file.write_text(FILE, encoding="utf-8")
    site = Site(temporal, asking(response, **terms))
    async with site.worker(), served(app_for(site, notifications=file)) as api:
        run_id = await site.start()
        (question,) = (await site.until(run_id, "awaiting-input")).interrupts
        yield Linked(
            site=site,
            api=api.url,
            run_id=run_id,
            question=question.model_dump(mode="json"),
            folder=folder,
        )


@pytest.mark.parametrize("answer", [("Approve", ""), ("Send answer", "yes")])
async def test_somebody_answers_by_a_link_and_sees_that_when_it_is_opened_again(
    temporal: TemporalClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[str, str],
) -> None:
    label, typed = answer

    def look(page: Page) -> None:
        page.says("dl", "You are")
        page.says("dl", "ada")
        if typed:
            page.one("form textarea").send_keys(typed)
        page.press(label)
        page.says("#status", "Your answer was accepted.")
        page.driver.refresh()
        page.says("#status", "You have answered this at ")
        assert page.texts("form button") == []

    async with linked(temporal, tmp_path, monkeypatch, str if typed else bool) as link:
        await link.seen(look)
        answered = await link.answered()

    assert (answered["answer"], answered["answered_by"]) == (typed or True, "ada")


async def test_a_call_is_approved_by_a_link_with_its_preview(
    temporal: TemporalClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(page: Page) -> None:
        page.says("main", "20 are left")
        page.press("Edit")
        page.press("Approve")
        page.says("#status", "Your answer was accepted.")

    async with linked(temporal, tmp_path, monkeypatch, refund) as link:
        await link.seen(look)
        ended = await link.answered()

    assert ended["answer"] == {"approved": True}


async def test_a_link_that_was_used_in_another_window_answers_nothing_more(
    temporal: TemporalClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(page: Page) -> None:
        address = page.driver.current_url
        with httpx.Client(verify=PLAIN, trust_env=False) as http:
            headers = {"Origin": link.api}
            http.post(address, json={"response": True}, headers=headers).raise_for_status()
        page.press("Reject")
        page.says("#problem", "answered by you")
        page.press("Approve")
        page.says("#status", "You have answered this before.")

    async with linked(temporal, tmp_path, monkeypatch, bool) as link:
        await link.seen(look)
        answered = await link.answered()

    assert answered["answer"] is True

"""The inbox in a real browser, over a whole stack: somebody sees what is asked, and answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from chromium import chromium
from dev_stack import Place, Stack, until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

HERE = Path(__file__).parent
HOSTILE = "<img src=x onerror=\"document.title='broken into'\"> & <b>bold</b>"
TOKEN = "a token for the test"


class Page:
    """The inbox as somebody sees it."""

    def __init__(self, driver: Any, api: str) -> None:
        self.driver = driver
        self.api = api
        driver.get(f"{api}/inbox")

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        return until(lambda: next(iter(self.all(selector)), None), selector, seconds=15)

    def says(self, selector: str, text: str) -> None:
        until(lambda: any(text in each.text for each in self.all(selector)), text, seconds=15)

    def open(self, prompt: str) -> None:
        until(lambda: self._link(prompt), prompt, seconds=15).click()
        self.says("article h2", prompt)

    def _link(self, prompt: str) -> Any:
        return next((link for link in self.all("#questions a") if prompt in link.text), None)

    def choose(self, legend: str, label: str) -> None:
        for group in self.all("fieldset.choices"):
            if group.find_element("css selector", "legend").text == legend:
                for each in group.find_elements("css selector", "label"):
                    if each.text == label:
                        each.find_element("css selector", "input").click()

    def field(self, label: str) -> Any:
        (found,) = [each for each in self.all(".field > label") if each.text == label]
        return self.one(f"#{found.get_attribute('for')}")

    def press(self, label: str) -> None:
        """Press the button with this label."""

        def pressed() -> bool:
            found = [each for each in self.all("button") if each.text == label]
            for each in found:
                each.click()
            return bool(found)

        until(pressed, label, seconds=15)


@contextmanager
def browser(folder: Path) -> Iterator[Any]:
    with chromium(folder) as driver:
        yield driver
        # The policy forbids what the page must not do; that shows here.
        faults = [
            each["message"] for each in driver.get_log("browser") if each["level"] == "SEVERE"
        ]
        assert [fault for fault in faults if "status of 4" not in fault] == []


@contextmanager
def stack(folder: Path, **variables: str) -> Iterator[Stack]:
    place = Place(folder)
    shutil.copy(HERE / "asking.py", folder / "sums.py")
    place.environment = {**place.environment, **variables}
    with place.stack() as running:
        yield running


def asked(api: str, prompt: str = "Pay?", **headers: str) -> str:
    """Start a run that asks, and return its id once it does."""
    body = {"graph": "asking", "input": {"prompt": prompt}}
    started = httpx.post(f"{api}/runs", json=body, headers=headers)
    assert started.status_code == 201, started.text
    run_id = str(started.json()["run_id"])
    query = {"wait": "PT20S", "until": "awaiting-input"}
    view = httpx.get(f"{api}/runs/{run_id}", params=query, headers=headers, timeout=30)
    assert view.json()["status"] == "awaiting-input"
    return run_id


def ended(api: str, run_id: str, **headers: str) -> dict[str, Any]:
    query = {"wait": "PT20S", "until": "completed"}
    view = httpx.get(f"{api}/runs/{run_id}", params=query, headers=headers, timeout=30)
    found: dict[str, Any] = view.json()
    assert found["status"] == "completed", found
    return found


def test_a_question_is_seen_answered_and_gone(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        run_id = asked(running.api, "Pay 12 for A-7?")
        page = Page(driver, running.api)
        page.one("#name").send_keys("Grace Hoppér")
        page.press("Use")
        page.says("#state", "1 open question")
        page.says("#questions h3", "Within a week (1)")
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
        page.one("details.more summary").click()
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


def test_what_a_run_says_stays_text(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        asked(running.api, HOSTILE)
        page = Page(driver, running.api)
        page.open(HOSTILE)
        page.says("dd", "onerror")
        title, pictures = driver.title, page.all("main img, main b")

    assert (title, pictures) == ("Inbox · Abeyance", [])


def test_what_turns_the_direction_of_a_text_is_shown_as_its_code_point(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        asked(running.api, "Pay \u202e0052 rosivda ot?")
        page = Page(driver, running.api)
        page.open("Pay <U+202E>0052 rosivda ot?")
        page.says("#questions a", "Pay <U+202E>0052 rosivda ot?")


def test_a_link_that_names_nothing_is_told_so(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        page = Page(driver, running.api)
        page.says("#state", "No open questions")
        driver.get(f"{running.api}/inbox#%")
        driver.refresh()
        page.says("article [role=alert]", "There is no interrupt '%'")
        page.says("#state", "No open questions")


def test_an_answer_may_be_written_as_json_and_one_from_elsewhere_is_told(tmp_path: Path) -> None:
    with stack(tmp_path) as running, browser(tmp_path / "profile") as driver:
        run_id = asked(running.api, "Pay again?")
        page = Page(driver, running.api)
        page.open("Pay again?")
        page.one("details.more summary").click()
        page.one("details.more input[type=checkbox]").click()
        area = page.one("textarea.json")
        answer = {"approved": False, "how": "by bank", "amount": 0}
        area.send_keys("{")
        page.press("Send answer")
        page.says(".fault", "invalid JSON")
        area.clear()
        area.send_keys('{"amount": 12345678901234567890}')
        page.press("Send answer")
        page.says(".fault", "too many digits")
        answered = httpx.post(
            f"{running.api}/runs/{run_id}/respond",
            json={"response": answer},
            headers={"X-Abeyance-Principal": "ada"},
        )
        assert answered.status_code == 200
        page.says("article [role=status]", "This question is answered by ada")


def test_where_tokens_are_needed_the_page_has_its_reader_sign_in(tmp_path: Path) -> None:
    grant = {"subject": "ada", "sha256": sha256(TOKEN.encode()).hexdigest(), "capabilities": ["*"]}
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([grant]))
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with (
        stack(tmp_path, ABEYANCE_TOKENS_FILE=str(tokens)) as running,
        browser(tmp_path / "profile") as driver,
    ):
        run_id = asked(running.api, "Pay Ada?", **bearer)
        interrupt = httpx.get(f"{running.api}/runs/{run_id}/interrupts", headers=bearer).json()
        page = Page(driver, running.api)
        driver.get(f"{running.api}/inbox#{interrupt['items'][0]['id']}")
        page.says("#state", "Sign in to see the questions.")
        page.one("#who a").click()
        page.one("#token").send_keys(TOKEN)
        page.press("Sign in")
        page.says("#me", "You are ada")
        page.says("article h2", "Pay Ada?")
        page.choose("How", "by bank")
        page.field("Amount").send_keys("0")
        page.press("Reject")
        page.says("article", "You rejected “Pay Ada?”")
        view = ended(running.api, run_id, **bearer)

    assert view["values"]["decision"]["approved"] is False

"""The pages of the inbox in a real browser, over a whole stack."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from chromium import chromium
from dev_stack import Place, Stack, until

_BROWSER: Final = Path(__file__).parents[1] / "browser"


class Page:
    """A page in the browser."""

    def __init__(self, driver: Any, api: str, path: str = "/inbox") -> None:
        self.driver = driver
        self.api = api
        driver.get(f"{api}{path}")

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        return until(lambda: next(iter(self.all(selector)), None), selector)

    def says(self, selector: str, text: str) -> None:
        until(lambda: any(text in each for each in self.texts(selector)), text)

    def patiently(self, work: Callable[[], object], what: str) -> None:
        """Repeat `work` until it returns a true value. The page may redraw its elements meanwhile."""
        exceptions = pytest.importorskip("selenium.common.exceptions")
        moved = (
            exceptions.StaleElementReferenceException,
            exceptions.ElementClickInterceptedException,
            exceptions.ElementNotInteractableException,
        )

        def attempt() -> bool:
            try:
                return bool(work())
            except moved:
                return False

        until(attempt, what)

    def click(self, selector: str) -> None:
        self.patiently(lambda: self.one(selector).click() or True, selector)

    def texts(self, selector: str) -> list[str]:
        """Return the texts of elements, as they are at one moment."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)"
        )
        return [str(text) for text in self.driver.execute_script(script, selector)]

    def open(self, prompt: str) -> None:
        def opened() -> bool:
            for link in self.all("#questions a"):
                if prompt in link.text:
                    link.click()
                    return True
            return False

        self.patiently(opened, prompt)
        self.says("article h2", prompt)

    def choose(self, legend: str, label: str) -> None:
        def chosen() -> bool:
            for group in self.all("fieldset.choices"):
                if group.find_element("css selector", "legend").text == legend:
                    for each in group.find_elements("css selector", "label"):
                        if each.text == label:
                            each.find_element("css selector", "input").click()
                            return True
            return False

        self.patiently(chosen, f"{legend}: {label}")

    def field(self, label: str) -> Any:
        (found,) = [each for each in self.all(".field > label") if each.text == label]
        return self.one(f"#{found.get_attribute('for')}")

    def press(self, label: str) -> None:
        """Press the button with this label."""

        def pressed() -> bool:
            for each in self.all("button"):
                if each.text == label:
                    each.click()
                    return True
            return False

        self.patiently(pressed, label)

    def focused(self) -> str:
        """Return the label or the text of the focused element."""
        script = (
            "const each = document.activeElement;"
            "return each.ariaLabel || each.labels?.[0]?.textContent || each.textContent || each.id"
        )
        return str(self.driver.execute_script(script))

    def sees_focus(self, text: str) -> None:
        """Wait until an element with this text has the focus."""
        until(lambda: text in self.focused(), f"{text!r} to have the focus")

    def scrolls_sideways(self) -> bool:
        """Return whether the page is wider than the screen."""
        script = (
            "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        return bool(self.driver.execute_script(script))

    def is_quiet(self, seconds: float = 12) -> None:
        """Wait until the page has requested nothing for `seconds`."""
        script = "return performance.getEntriesByType('resource').map((each) => each.responseEnd)"

        def rests() -> bool:
            last = max(self.driver.execute_script(script), default=0)
            now = self.driver.execute_script("return performance.now()")
            return float(now) - float(last) > seconds * 1000

        until(rests, "a page that asks for nothing", seconds=90)

    def keys(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""

        def pressed() -> bool:
            self.driver.switch_to.active_element.send_keys(*keys)
            return True

        self.patiently(pressed, f"the keys {keys}")


@contextmanager
def browser(folder: Path) -> Iterator[Any]:
    with chromium(folder) as driver:
        yield driver
        # The browser logs here what the Content Security Policy has blocked.
        faults = [
            each["message"] for each in driver.get_log("browser") if each["level"] == "SEVERE"
        ]
        assert [fault for fault in faults if "status of 4" not in fault] == []


@contextmanager
def stack(folder: Path, graphs: str = "asking.py", **variables: str) -> Iterator[Stack]:
    place = Place(folder)
    shutil.copy(_BROWSER / graphs, folder / "sums.py")
    place.environment = {**place.environment, **variables}
    with place.stack() as running:
        yield running


def asked(api: str, prompt: str = "Pay?", graph: str = "asking", **headers: str) -> str:
    """Start a run that asks, and return its id once it does."""
    body = {"graph": graph, "input": {"prompt": prompt}}
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


def respond(api: str, id_: str, who: str, answer: object) -> None:
    headers = {"X-Abeyance-Principal": who}
    sent = httpx.post(f"{api}/interrupts/{id_}/respond", json={"response": answer}, headers=headers)
    assert sent.status_code == 200, sent.text


def ask(api: str, id_: str, verb: str, who: str) -> None:
    headers = {"X-Abeyance-Principal": who}
    sent = httpx.post(f"{api}/interrupts/{id_}/{verb}", json={}, headers=headers)
    assert sent.status_code == 200, sent.text


def remembered(api: str) -> str:
    """Revoke all grants, approve a call and the next 20 of its kind as ada, and return its run."""
    with httpx.Client(base_url=api, headers={"X-Abeyance-Request": "1"}) as http:
        for each in http.get("/grants").json()["items"]:
            http.delete(f"/grants/{each['id']}").raise_for_status()
    run_id = asked(api, "go", graph="topping")
    answer = {"approved": True, "remember": {"for": "8h", "where": "graph", "uses": 20}}
    # Abeyance does not remember an approval of a person with all capabilities.
    may = "runs:respond,topup:approve"
    headers = {"X-Abeyance-Principal": "ada", "X-Abeyance-Capabilities": may}
    path = f"{api}/interrupts/{question_of(api, run_id)}/respond"
    sent = httpx.post(path, json={"response": answer}, headers=headers)
    assert sent.status_code == 200, sent.text
    return run_id


def listed(api: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = httpx.get(f"{api}/interrupts").json()["items"]
    return items


def view_of(api: str, run_id: str) -> dict[str, Any]:
    view: dict[str, Any] = httpx.get(f"{api}/runs/{run_id}").json()
    return view


def question_of(api: str, run_id: str) -> str:
    (entry,) = httpx.get(f"{api}/runs/{run_id}/interrupts").json()["items"]
    return str(entry["id"])

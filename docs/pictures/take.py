"""Take the pictures of docs/how-to/operating.md: a real stack, real runs, Temporal's real UI in Chromium.

    pip install -e '.[dev]' selenium        # and Chromium with its driver, from the system
    python docs/pictures/take.py

It starts `abeyance dev` on free ports with the graph below, brings runs into every state that the page
shows, and writes the pictures beside this file. Look at them before you commit them: Temporal's UI
changes from version to version, and with it what is named here.
"""  # noqa: INP001 this folder is not a package

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import httpx
from pydantic import BaseModel

from abeyance import END, START, Context, Graph, append

T = TypeVar("T")

HERE: Final = Path(__file__).resolve().parent
WIDTH: Final = 1280
SECONDS: Final = 60.0
LIMIT: Final = 1_000
"""In EUR: from here on the bank answers nothing but errors."""


class Decision(BaseModel):
    """What the person says who may approve."""

    approved: bool
    note: str = ""


class Refund(BaseModel):
    """A refund: only the first two fields are input."""

    order_id: str
    amount: float
    decision: Decision | None = None
    address: str | None = None
    log: Annotated[list[str], append] = []


def refund(*, letters: bool) -> Graph:
    """A graph with a gate, a question to anybody, a bank that may be down, and a deadline."""
    graph = Graph("refund", state=Refund)

    @graph.node
    async def assess(state: Refund) -> dict[str, Any]:
        return {"log": [f"assessed {state.order_id}"]}

    @graph.node(retries=2, timeout="30s")
    async def pay(state: Refund, ctx: Context) -> dict[str, Any]:
        if state.amount > LIMIT:
            raise ConnectionError("the bank answers 502 Bad Gateway")
        return {"log": [f"paid under the key {ctx.idempotency_key}"]}

    if letters:

        @graph.node
        async def write(state: Refund) -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"log": [f"wrote to {state.address}"]}

    graph.interrupt(
        "approve",
        prompt="Refund {amount} EUR for the order {order_id}?",
        response=Decision,
        answer_to="decision",
        requested_capability="refunds:approve",
        timeout="P2D",
        on_timeout="halt",
    )
    graph.interrupt(
        "address",
        prompt="Where does the letter about {order_id} go?",
        response=str,
        answer_to="address",
    )
    graph.edge(START, "assess")
    graph.edge("assess", "approve")
    graph.edge("assess", "address")
    graph.edge("approve", "pay", when={"decision.approved": True})
    graph.edge("approve", END, when="else")
    graph.edge("address", "write" if letters else END)
    return graph


graph = refund(letters=True)
without_letters = refund(letters=False)
"""A deploy that has lost the code of a node for which a run is waiting."""


def main() -> None:
    """Take all pictures."""
    with tempfile.TemporaryDirectory() as folder, browser() as look:
        with stack("take:graph", folder) as (api, ui):
            runs = Runs(api)
            runs.prepare()
            look.at(f"{ui}/namespaces/default/workflows", "Workflow ID")
            look.choose_columns(
                drop=["Run ID", "Start", "End"],
                add=["AbeyanceStatus"],
            )
            look.picture("list", top=60, height=440)
            page = f"{ui}/namespaces/default/workflows/"
            look.at_tab(page + "refund-A-7", "user-metadata", "Current Details")
            look.picture("waiting", top=275, height=1220)
            look.dialog(page + "refund-A-7", "Send a Signal", "signal")
            look.picture_of("signals", "dialog[open]")
            look.dialog(page + "refund-A-7", "Send an Update", "update")
            look.fill("respond", runs.order("refund-A-7", "approve", '{"approved": true}'))
            look.until("may not answer")
            # Below it stands a stack trace, which helps nobody who reads a page.
            look.picture_of("refused", "dialog[open]", above="dialog[open] [role=alert] .cm-editor")
            look.at_tab(page + "refund-A-8", "user-metadata", "Current Details")
            look.picture("paused", top=275, height=390)
            look.at_tab(page + "refund-A-9", "user-metadata", "Current Details")
            look.picture("failed", top=100, height=480)
            look.at_tab(page + "refund-A-9", "timeline", "502 Bad Gateway")
            look.picture("timeline", top=715, height=300)
            look.at_tab(page + "refund-A-10", "timeline", "ordered twice")
            look.picture("cancelled", top=100, height=560)
        with stack("take:without_letters", folder) as (api, ui):
            runs = Runs(api)
            runs.answer("refund-A-11", "address", "Elm Street 4")
            look.at_tab(
                f"{ui}/namespaces/default/workflows/refund-A-11",
                "pending-activities",
                "deploy a worker",
            )
            look.picture("blocked", top=275, height=282)


class Runs:
    """The runs that are shown, by the API of a stack."""

    def __init__(self, api: str) -> None:
        headers = {"X-Abeyance-Principal": "ada"}
        self._http = httpx.Client(base_url=api, headers=headers, timeout=30, trust_env=False)

    def prepare(self) -> None:
        """Bring one run into each state."""
        amounts = {"A-7": 250, "A-8": 120, "A-9": 9_900, "A-10": 80, "A-11": 60, "A-12": 30}
        for order_id, amount in amounts.items():
            self._post(
                "/runs",
                {
                    "graph": "refund",
                    "run_id": f"refund-{order_id}",
                    "input": {"order_id": order_id, "amount": amount},
                    "labels": {"team": "billing"},
                },
            )
        for order_id in amounts:
            self._until(f"refund-{order_id}", "awaiting-input")
        self._post("/runs/refund-A-8/pause", {"reason": "the fraud team wants to look first"})
        self._post("/runs/refund-A-10/cancel", {"reason": "ordered twice"})
        self.answer("refund-A-9", "approve", {"approved": True})
        self.answer("refund-A-9", "address", "Elm Street 4")
        self.answer("refund-A-12", "approve", {"approved": True})
        self.answer("refund-A-12", "address", "Elm Street 4")
        for order_id, status in {
            "A-8": "paused",
            "A-9": "failed",
            "A-10": "cancelled",
            "A-12": "completed",
        }.items():
            self._until(f"refund-{order_id}", status)

    def answer(self, run_id: str, name: str, response: Any) -> None:
        """Answer a question."""
        body = {"interrupt_id": self._id(run_id, name), "response": response}
        self._post(f"/runs/{run_id}/respond", body)

    def order(self, run_id: str, name: str, response: str) -> str:
        """An answer as somebody types it into Temporal's UI."""
        return f'{{"interrupt_id": "{self._id(run_id, name)}", "response": {response}}}'

    def _id(self, run_id: str, name: str) -> str:
        listed = self._http.get(f"/runs/{run_id}/interrupts").raise_for_status().json()["items"]
        return next(str(entry["id"]) for entry in listed if entry["name"] == name)

    def _post(self, path: str, body: Any) -> None:
        self._http.post(path, json=body).raise_for_status()

    def _until(self, run_id: str, status: str) -> None:
        until(
            lambda: self._http.get(f"/runs/{run_id}").json().get("status") == status,
            f"{run_id} to be {status}",
        )


class Look:
    """A browser that looks at Temporal's UI."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def at(self, address: str, text: str) -> None:
        """Open a page and wait until it shows a text."""
        self._driver.get(address)
        self.until(text)

    def at_tab(self, page: str, tab: str, text: str) -> None:
        """Open a tab of a run's page."""
        self.at(page, "More Actions")
        self._click(f"a[href*='/{tab}']")
        self.until(text)

    def until(self, text: str) -> None:
        """Wait until the page shows a text, and for what moves to come to rest."""
        until(lambda: text in self._driver.find_element("tag name", "body").text, text)
        time.sleep(1.5)

    def screen(self, width: int, height: int) -> None:
        """Take another size of the page, also a smaller one than a window can have."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def scheme(self, name: str) -> None:
        """Prefer a light or a dark page."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def whole(self, path: Path) -> None:
        """Write what the screen shows."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._driver.save_screenshot(str(path))

    def run(self, script: str) -> None:
        """Run a script on the page."""
        self._driver.execute_script(script)

    def press(self, text: str, selector: str = "button") -> None:
        """Press the button, or whatever the selector says, that has a text in it."""

        def found() -> Any:
            return next((each for each in self._visible(selector) if text in each.text), None)

        until(found, f"{selector} {text}").click()
        time.sleep(0.5)

    def choose_columns(self, *, drop: list[str], add: list[str]) -> None:
        """Configure the columns of the list."""
        self._click("[data-testid=workflows-summary-table-configuration-button]")
        for name in [*drop, *add]:
            self.until(name)
            row = f"//li[normalize-space(.)='{name}']//button"
            self._driver.execute_script(
                "arguments[0].click()", self._driver.find_elements("xpath", row)[-1]
            )
        self._driver.refresh()
        self.until("AbeyanceStatus")

    def dialog(self, page: str, menu: str, kind: str) -> None:
        """Open a dialog of the menu of a run, and the list of names in it."""
        self.at(page, "More Actions")
        self._click("button", "More Actions")
        self._click("[role=menuitem]", menu)
        self._click(f"dialog[open] [data-testid={kind}-select-button]")

    def fill(self, name: str, value: str) -> None:
        """Fill a dialog and send it."""
        self._click("dialog[open] [role=option]", name)
        self._click("dialog[open] .cm-content").send_keys(value)
        # The UI lays out what was typed when one leaves the field, and moves the button in doing so.
        self._driver.execute_script("document.activeElement.blur()")
        time.sleep(1)
        self._click("dialog[open] button", "Submit")

    def picture(
        self, name: str, *, top: int, height: int, left: int = 256, width: int = WIDTH - 256
    ) -> None:
        """Write a part of the page, without the menu at its left."""
        # Leaving a tab ends its long poll, of which the UI complains.
        complaint = "//*[normalize-space(.)='Failed to fetch']/..//button"
        for button in self._driver.find_elements("xpath", complaint)[-1:]:
            self._driver.execute_script("arguments[0].click()", button)
        time.sleep(1)
        clip = {"x": left, "y": top, "width": width, "height": height, "scale": 1}
        taken = self._driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip})
        (HERE / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))

    def picture_of(self, name: str, selector: str, *, above: str | None = None) -> None:
        """Write what an element shows; with `above`, only as far as where another one begins."""
        whole = self._visible(selector)[-1].rect
        end = whole["y"] + whole["height"]
        if above is not None:
            end = self._visible(above)[-1].rect["y"]
        sides = {"left": int(whole["x"]), "width": int(whole["width"])}
        self.picture(name, top=int(whole["y"]), height=int(end - whole["y"]), **sides)

    def _visible(self, selector: str) -> list[Any]:
        found = self._driver.find_elements("css selector", selector)
        return [element for element in found if element.is_displayed()]

    def _click(self, selector: str, text: str = "") -> Any:
        def found() -> Any:
            shown = self._visible(selector)
            return next((e for e in shown if e.text.split("\n")[0].startswith(text)), None)

        element = until(found, f"{selector} {text}")
        element.click()
        time.sleep(0.5)
        return element


@contextmanager
def browser() -> Iterator[Look]:
    """Chromium without a window."""
    # Only here, so that the processes of the stack, which import this module too, need no browser.
    from selenium import webdriver  # noqa: PLC0415
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--hide-scrollbars",
        f"--window-size={WIDTH},1700",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Look(driver)
    finally:
        driver.quit()


@contextmanager
def stack(app: str, folder: str) -> Iterator[tuple[str, str]]:
    """`abeyance dev` with its data in a folder: the addresses of the API and of Temporal's UI."""
    ports = ("--api-port", "0", "--temporal-port", "0", "--ui", "--ui-port", "0")
    command = [sys.executable, "-P", "-m", "abeyance", "dev", app, *ports, "--data-dir", folder]
    process = subprocess.Popen(  # noqa: S603 our own command
        command, cwd=HERE, env=dict(os.environ), stdout=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        if "API " not in line:
            raise SystemExit(f"the stack did not start: {line}")
        yield line.split("API ")[1].split(",")[0], line.split("UI ")[1].split(",")[0]
    finally:
        process.terminate()
        process.wait(30)


def until(look: Callable[[], T], what: str) -> T:
    """What there is to see, as soon as there is something."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.1)
    raise SystemExit(f"waited {SECONDS:g} s for {what}")


if __name__ == "__main__":
    main()

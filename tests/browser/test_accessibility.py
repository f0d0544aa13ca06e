"""No page of the inbox violates a rule of accessibility: light or dark, on a laptop or on a phone."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx
import pytest
from dev_stack import Stack, until
from inbox_page import Page, asked, question_of, remembered, respond

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240), pytest.mark.xdist_group("inbox")]

AXE: Final = "axe-core@4.10.3"
RULES: Final = """
const done = arguments[arguments.length - 1];
const shown = ({id, nodes}) => [id, nodes.map(({html}) => html)];
axe.run().then(({violations}) => done(violations.map(shown)));
"""
# Returns the controls that are less than 44 pixels high. A link within text is exempt, and so is the
# checkbox of a question, which lies beside the question's link.
SMALL: Final = """
const all = document.querySelectorAll("button, select, summary, textarea, input, nav a, .button, .send");
const place = (each) => each.closest("label:has([type=radio], [type=checkbox])") ?? each;
const isSmall = (each) => each.checkVisibility() && place(each).getBoundingClientRect().height < 44;
const isPressed = (each) => !each.matches("#questions li > input") && isSmall(each);
return [...all].filter(isPressed).map((each) => each.outerHTML);
"""
ENTER: Final = "\ue007"
ESCAPE: Final = "\ue00c"
PHONE: Final = 500
"""In pixels: a narrower screen is a phone's."""


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, fetched by npm."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("axe-core is fetched by npm: install Node.js, which has it")
    folder = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", AXE]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"npm could not fetch {AXE}: {fetched.stderr[-300:]}")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@contextmanager
def looking(page: Page, axe: str, scheme: str, width: int) -> Iterator[Callable[[str], None]]:
    """Show the page on such a screen, and yield a call that checks the page as it is now, under a name.

    At the end no checked state of the page may violate a rule.
    """
    found: dict[str, Any] = {}

    def look(name: str) -> None:
        page.driver.execute_script(axe)
        found[name] = page.driver.execute_async_script(RULES)
        if page.scrolls_sideways():
            found[name].append("it is wider than the screen")

    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < PHONE}
    feature = {"name": "prefers-color-scheme", "value": scheme}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    try:
        yield look
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert {name: each for name, each in found.items() if each} == {}, json.dumps(found, indent=1)


def every_kind(api: str) -> tuple[str, str, str]:
    """Ask in every way. Return the ids of a waiting run, of a failed one, and of a held question."""
    run_id = asked(api, "pay", graph="payments")
    asked(api, "Publish?", graph="urgent")
    voted = asked(api, "Pay 900?", graph="voted")
    respond(api, question_of(api, voted), "bob", answer=True)
    for graph in ("budgeted", "shipping"):
        asked(api, "go", graph=graph)
    held = question_of(api, asked(api, "Send it?", graph="held"))
    respond(api, held, "ada", answer=True)
    started = {"graph": "breaking", "input": {}}
    failed = httpx.post(f"{api}/runs", json=started).json()["run_id"]
    return run_id, failed, held


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_no_page_violates_a_rule_of_accessibility(
    page: Page, running: Stack, axe: str, scheme: str, width: int
) -> None:
    run_id, failed, held = every_kind(running.api)

    def at(path: str, selector: str, text: str) -> None:
        page.driver.get("about:blank")
        page.driver.get(f"{running.api}{path}")
        page.says(selector, text)
        look(path.replace(run_id, "run").replace(failed, "failed"))

    with looking(page, axe, scheme, width) as look:
        page.says("#state", "5 open questions")
        look("list")
        for prompt in ("Publish?", "Refund 5000", "Pay 900?", "used up", "Ship?"):
            page.open(prompt)
            look(prompt)
            if width < PHONE:
                page.press("All questions")
                until(page.one("#list").is_displayed, "the list")
        page.open("Publish?")
        page.keys("a")
        page.says("dialog", "An answer cannot be taken back.")
        look("confirmation")
        page.keys(ESCAPE)
        page.keys("?")
        page.says("#help", "approve, reject")
        look("help")
        page.keys(ESCAPE)
        at("/inbox?tab=held", "#questions a", "Send it?")
        at("/inbox?tab=decided", "#questions", "")
        at(f"/inbox#{held}", "article h2", "Send it?")
        at(f"/inbox/runs/{run_id}", "#state", "awaiting input")
        at(f"/inbox/runs/{failed}", ".trouble", "This run failed")
        remembered(running.api)
        at("/inbox/runs", "#state", "runs")
        at("/inbox/approvals?fields=amount&sum=amount", "#state", "row")
        at("/inbox/grants", "#state", "1 grant")
        at("/signin", "h1", "Sign in")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_no_step_of_answering_violates_a_rule_of_accessibility(
    page: Page, running: Stack, axe: str, scheme: str, width: int
) -> None:
    asked(running.api, "pay", graph="payments")
    for _ in range(2):
        asked(running.api, "go", graph="giving")
    with looking(page, axe, scheme, width) as look:
        page.says("#state", "3 open questions")
        page.open("Refund 5000")
        page.press("Edit")
        page.field("Amount").send_keys("0")
        page.says(".changes", "5000 → 50000")
        look("an edit")
        page.press("Approve")
        page.says("article", "You approved refund")
        look("an outcome")
        page.driver.get("about:blank")
        page.driver.get(f"{running.api}/inbox?tab=open&isGrouped=yes&text=Give")
        page.press("Select all 2")
        look("a selection")
        page.press("Answer all selected…")
        page.says("article h2", "Answer 2 questions")
        look("several at once")
        page.press("Approve (2)")
        page.says("dialog", "Approve 2 questions?")
        look("their confirmation")
        page.keys(ENTER)
        until(lambda: all(page.texts(".result")), "two results")
        look("their results")


def test_on_a_phone_nothing_to_press_is_smaller_than_a_finger(page: Page, running: Stack) -> None:
    run_id = asked(running.api, "pay", graph="payments")
    asked(running.api, "Publish?", graph="urgent")
    remembered(running.api)
    screen = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    small: dict[str, list[str]] = {}

    def at(path: str, selector: str, text: str) -> None:
        page.driver.get("about:blank")
        page.driver.get(f"{running.api}{path}")
        page.says(selector, text)
        small[path] = page.driver.execute_script(SMALL)

    try:
        at("/inbox?tab=open", "#state", "2 open questions")
        at(f"/inbox?tab=open#{question_of(running.api, run_id)}", "article h2", "Refund 5000")
        page.press("Edit")
        small["edit"] = page.driver.execute_script(SMALL)
        at("/inbox/runs", "#state", "runs")
        at(f"/inbox/runs/{run_id}", "#state", "awaiting input")
        at("/inbox/approvals", "#state", "row")
        at("/inbox/grants", "#state", "1 grant")
        at("/signin", "h1", "Sign in")
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert {path: each for path, each in small.items() if each} == {}

"""Take the pictures of docs/how-to/inbox.md: a real stack, real runs, every page in Chromium.

    pip install -e '.[agents,dev,people]' selenium        # and Chromium with its driver, from the system
    python docs/pictures/take_inbox.py [FOLDER]           # or: make pictures [FOLDER=...]

It starts `abeyance dev` on free ports with the graphs below. Each page is taken on a laptop and on a
phone, light and dark, as `FOLDER/<page>-<width>-<scheme>.png`; without a folder, only the pictures of the
documentation are taken, and written beside this file.
"""  # noqa: INP001 this folder is not a package

from __future__ import annotations

import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal

import httpx
from pydantic import BaseModel
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo
from take import HERE, Look, browser, stack, until

from abeyance import END, START, Agent, Graph, Quorum, Remember, ToolContext, tool

SIZES: Final = {1280: 800, 390: 844}
SCHEMES: Final = ("light", "dark")
AMOUNT: Final = "reason.arguments.amount"
IN_THE_DOCS: Final = {
    "question-1280-light": "inbox",
    "votes-1280-light": "votes",
    "held-1280-light": "held",
    "run-1280-light": "run",
    "runs-1280-light": "runs",
    "inbox-390-light": "phone",
    "approvals-1280-light": "approvals",
    "grants-1280-light": "grants",
}
"""The pictures that the documentation shows, and their names there."""


class Matter(BaseModel):
    """What is asked about."""

    request: str = ""
    answer: bool | None = None
    report: str | None = None


class Payout(BaseModel):
    """Money that leaves."""

    payee: str
    amount: float
    answer: bool | None = None
    paid: str | None = None


class Vendor(BaseModel):
    """What one must know of a vendor."""

    approved: bool
    vat_id: str
    limit_eur: float = 10_000
    terms: Literal["14 days", "30 days", "prepaid"] = "30 days"
    comment: str | None = None


async def effect(_: ToolContext, order: str, amount: float) -> dict[str, Any]:
    """Say what a refund would do."""
    rows = [
        {"article": "Floor lamp", "paid": 129.0, "refund": 129.0},
        {"article": "Delivery", "paid": 9.9, "refund": 9.9},
    ]
    return {"summary": f"{order}: {amount:.2f} EUR go back, 0.00 stay.", "table": rows}


@tool(
    approve=True,
    preview=effect,
    prompt="**Refund {amount} EUR** for order {order}?\n\nThe lamp arrived broken; see "
    "[the photos](https://example.com/photos/A-7).",
    approval_timeout="1d",
    remember=Remember(most="7d", where=["run", "graph"], same=["way"], below={"amount": 200}),
)
async def refund(order: str, amount: float, by: date, way: Literal["bank", "voucher"]) -> str:
    """Refund an order."""
    return f"refunded {amount} for {order} by {by} ({way})"


def clerk(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for one refund, of the order that the request ends with, and say what came of it."""
    del info
    for part in messages[-1].parts:
        if isinstance(part, ToolReturnPart):
            return ModelResponse(parts=[TextPart(str(part.content))])
    order = str(getattr(messages[0].parts[-1], "content", "")).split()[-1].strip(".")
    arguments = {"order": order, "amount": 138.9, "by": "2026-12-01", "way": "bank"}
    return ModelResponse(
        parts=[TextPart("The photos show it."), ToolCallPart("refund", arguments, "1")]
    )


refunds = Graph("refunds", state=Matter)
refunds.agent(
    "clerk", Agent("clerk", model=clerk, tools=[refund]), input="request", output="report"
)
refunds.edge(START, "clerk")

payouts = Graph("payouts", state=Payout)


@payouts.node(retries=0)
async def check(state: Payout) -> dict[str, Any]:
    """Fail for one payee."""
    if state.payee == "Nobody":
        raise LookupError("the bank does not know the account of Nobody")
    return {}


@payouts.node
async def pay(state: Payout) -> dict[str, Any]:
    """Pay."""
    return {"paid": f"{state.amount:.2f} EUR to {state.payee}"}


payouts.interrupt(
    "release",
    prompt="Pay out {amount} EUR to {payee}?",
    reason={
        "payee": "{payee}",
        "amount": "{amount}",
        "budget_left": 41_250.0,
        "invoice": "R-2026-118",
    },
    response=bool,
    answer_to="answer",
    quorum=Quorum(2, of=["ada", "bob", "carol"]),
    priority="high",
    risk=72,
    timeout="4h",
)
payouts.edge(START, "check")
payouts.edge("check", "release")
payouts.edge("release", "pay", when={"answer": True})
payouts.edge("release", END, when="else")


def gate(name: str, response: Any = bool, **terms: Any) -> Graph:
    """A graph that asks one question."""
    asking = Graph(name, state=Matter)
    asking.interrupt("decide", prompt="{request}", response=response, **terms)
    asking.edge(START, "decide")
    return asking


graphs = [
    refunds,
    payouts,
    gate("vendors", Vendor, timeout="2d", assignees=["group:purchasing"], priority="low"),
    gate("campaigns", assignees=["ada"], timeout="3d", risk=45),
    gate("posts", assignees=["bob"], assignees_only=True),
    gate("access", assignees=["ada", "bob"], timeout="25m"),
    gate("letters", hold="1h"),
]


def main() -> None:
    """Take all pictures."""
    with (
        tempfile.TemporaryDirectory() as temporary,
        browser() as look,
        stack("take_inbox:graphs", temporary) as (api, _),
    ):
        takes_all = len(sys.argv) > 1
        folder = Path(sys.argv[1]) if takes_all else Path(temporary)
        started = prepare(api)
        look.at(f"{api}/inbox", "open question")
        look.run("sessionStorage.setItem('name', 'ada')")
        pages = addresses(api, started)
        for width, height in SIZES.items():
            look.screen(width, height)
            for scheme in SCHEMES:
                look.scheme(scheme)
                for name, (path, text) in pages.items():
                    if not takes_all and f"{name}-{width}-{scheme}" not in IN_THE_DOCS:
                        continue
                    look.at("about:blank", "")
                    look.at(f"{api}{path}", text)
                    if name == "together":
                        together(look)
                    look.whole(folder / f"{name}-{width}-{scheme}.png")
        if not takes_all:
            for name, shown in IN_THE_DOCS.items():
                (folder / f"{name}.png").rename(HERE / f"{shown}.png")


def addresses(api: str, started: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Each page: its path, and a text by which one sees that it is there."""

    def question(request: str) -> str:
        run = started[request]
        found = httpx.get(f"{api}/runs/{run}/interrupts?status=all", trust_env=False).json()[
            "items"
        ]
        return f"/inbox?tab=open#{found[0]['id']}"

    return {
        "inbox": ("/inbox?tab=open", "Open"),
        "question": (question("Her lamp arrived broken: order A-7."), "What would happen"),
        "votes": (question("Elm Ltd"), "1 missing"),
        "form": (question("May we buy from Gamma KG?"), "prepaid"),
        "held": (question("Send the letter to Ms Hopper?"), "Take back"),
        "together": ("/inbox?tab=open&isGrouped=yes&text=refund", "Select all"),
        "runs": ("/inbox/runs", "Started by"),
        "run": (f"/inbox/runs/{started['Elm Ltd']}", "Timeline"),
        "failed": (f"/inbox/runs/{started['Nobody']}", "Retry"),
        "approvals": (f"/inbox/approvals?fields={AMOUNT}&sum={AMOUNT}", "Sum of"),
        "grants": ("/inbox/grants", "uses left"),
        "signin": ("/signin", "Sign in"),
    }


def together(look: Look) -> None:
    """Show equal questions together."""
    look.press("Select all", "#questions button")
    look.press("Answer all selected", "#together button")
    look.until("in total")


def prepare(api: str) -> dict[str, str]:
    """Start what is shown, and return the ids of the runs."""
    asked: dict[str, list[Any]] = {
        "refunds": [f"Her lamp arrived broken: order A-{number}." for number in range(7, 13)],
        "payouts": [
            ("Elm Ltd", 12_900.0),
            ("Oak & Sons", 1_250.5),
            ("Birch AG", 870.0),
            ("Nobody", 10.0),
        ],
        "vendors": ["May we buy from Gamma KG?", "May we buy from Delta SARL?"],
        "campaigns": [
            f"Send the {each} mail to 4,100 customers?"
            for each in ("spring", "summer", "autumn", "winter")
        ],
        "posts": [f"Publish the notes of release 2.{each}?" for each in range(1, 6)],
        "access": ["Give Ms Lovelace access to the ledger?"],
        "letters": ["Send the letter to Ms Hopper?"],
    }
    started: dict[str, str] = {}
    with httpx.Client(base_url=api, timeout=30, trust_env=False) as http:
        for graph, requests in asked.items():
            for request in requests:
                input_ = (
                    {"request": request}
                    if isinstance(request, str)
                    else dict(zip(("payee", "amount"), request, strict=True))
                )
                body = {"graph": graph, "input": input_, "labels": {"team": "billing"}}
                who = {"X-Abeyance-Principal": "grace.hopper"}
                answer = http.post("/runs", json=body, headers=who).raise_for_status().json()
                started[request if isinstance(request, str) else request[0]] = answer["run_id"]
        for name, run_id in started.items():
            query = {"wait": "PT30S", "until": "failed" if name == "Nobody" else "awaiting-input"}
            http.get(f"/runs/{run_id}", params=query).raise_for_status()
        for_hours = {"approved": True, "remember": {"for": "8h", "where": "graph", "uses": 20}}
        answers: list[tuple[str, str, str, Any]] = [
            ("Elm Ltd", "bob", "as budgeted", True),
            ("Send the letter to Ms Hopper?", "ada", "", True),
            ("Her lamp arrived broken: order A-12.", "ada", "the usual", for_hours),
        ]
        for request, who_answers, note, answer in answers:
            body = {"response": answer, "note": note}
            headers = {
                "X-Abeyance-Principal": who_answers,
                "X-Abeyance-Capabilities": "runs:respond",
            }
            path = f"/runs/{started[request]}/respond"
            http.post(path, json=body, headers=headers).raise_for_status()
        until(lambda: http.get("/grants").json()["items"], "a grant")
        for number in (13, 14):
            body = {"graph": "refunds", "input": {"request": f"The same: order A-{number}."}}
            run_id = http.post("/runs", json=body).raise_for_status().json()["run_id"]
            http.get(f"/runs/{run_id}", params={"wait": "PT30S"}).raise_for_status()
        until(lambda: len(http.get("/interrupts").json()["items"]) >= 20, "twenty questions")  # noqa: PLR2004
    time.sleep(1)
    return started


if __name__ == "__main__":
    main()

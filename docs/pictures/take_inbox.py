"""Take the pictures of docs/how-to/inbox.md: a real stack, real runs, the inbox in Chromium.

    pip install -e '.[agents,dev,people]' selenium        # and Chromium with its driver, from the system
    python docs/pictures/take_inbox.py

It starts `abeyance dev` on free ports with the graphs below, and writes the pictures beside this file.
"""  # noqa: INP001 this folder is no package

from __future__ import annotations

import tempfile
import time
from datetime import date
from typing import Any, Final, Literal

import httpx
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo
from take import browser, stack, until

from abeyance import START, Agent, Graph, Quorum, ToolContext, tool

WIDTH: Final = 1180
PHONE: Final = 360


class Matter(BaseModel):
    """What is asked about."""

    request: str = ""
    answer: bool | None = None
    report: str | None = None


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
)
async def refund(order: str, amount: float, by: date, way: Literal["bank", "voucher"]) -> str:
    """Refund an order."""
    return f"refunded {amount} for {order} by {by} ({way})"


def clerk(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for one refund."""
    del messages, info
    arguments = {"order": "A-7", "amount": 138.9, "by": "2026-12-01", "way": "bank"}
    return ModelResponse(
        parts=[TextPart("The photos show it."), ToolCallPart("refund", arguments, "1")]
    )


refunds = Graph("refunds", state=Matter)
refunds.agent(
    "clerk", Agent("clerk", model=clerk, tools=[refund]), input="request", output="report"
)
refunds.edge(START, "clerk")


def gate(name: str, **terms: Any) -> Graph:
    """A graph that asks one yes or no."""
    asking = Graph(name, state=Matter)
    asking.interrupt("decide", prompt="{request}", response=bool, answer_to="answer", **terms)
    asking.edge(START, "decide")
    return asking


graphs = [
    refunds,
    gate("payouts", quorum=Quorum(2), assignees=["group:finance"], priority="high", timeout="4h"),
    gate("campaigns", assignees=["ada"], timeout="3d", risk=20),
    gate("posts", assignees=["bob"], assignees_only=True),
    gate("letters", hold="1h"),
]


def main() -> None:
    """Take all pictures."""
    with (
        tempfile.TemporaryDirectory() as folder,
        browser() as look,
        stack("take_inbox:graphs", folder) as (api, _),
    ):
        prepare(api)
        page = f"{api}/inbox"
        look.at(page, "open question")
        look.run("sessionStorage.setItem('name', 'ada')")
        look.at("about:blank", "")
        look.at(page, "Mine")
        look.screen(WIDTH, 900)
        look.press("Open 6")
        look.press("Refund 138.9 EUR", "#questions a")
        look.until("What would happen")
        look.picture("inbox", top=0, height=880, left=0, width=WIDTH)
        look.press("Pay out 900 EUR to Elm Ltd?", "#questions a")
        look.until("1 missing")
        look.picture("votes", top=50, height=360, left=415, width=WIDTH - 415)
        look.press("Held 1")
        look.press("Send the letter to Ms Hopper?", "#questions a")
        look.until("Take back")
        look.picture("held", top=50, height=250, left=0, width=WIDTH)
        run_id = runs(api, "refunds")[0]
        look.at(f"{api}/inbox/runs/{run_id}", "awaiting-input")
        look.picture("run", top=0, height=620, left=0, width=WIDTH)
        look.at("about:blank", "")
        look.screen(PHONE, 640)
        look.at(page, "Mine")
        look.press("Open 6")
        look.picture("phone", top=0, height=640, left=0, width=PHONE)


def prepare(api: str) -> None:
    """Start what is shown."""
    asked = {
        "refunds": ["Ms Hopper writes that her lamp arrived broken."],
        "payouts": ["Pay out 900 EUR to Elm Ltd?", "Pay out 1,250 EUR to Oak & Sons?"],
        "campaigns": ["Send the spring mail to 4,100 customers?", "Book the banner for April?"],
        "posts": ["Publish the notes of release 2.1?"],
        "letters": ["Send the letter to Ms Hopper?"],
    }
    started = {}
    with httpx.Client(base_url=api, timeout=30, trust_env=False) as http:
        for graph, requests in asked.items():
            for request in requests:
                body = {"graph": graph, "input": {"request": request}}
                started[request] = http.post("/runs", json=body).raise_for_status().json()["run_id"]
        for run_id in started.values():
            query = {"wait": "PT30S", "until": "awaiting-input"}
            http.get(f"/runs/{run_id}", params=query).raise_for_status()
        for request, who in {
            "Pay out 900 EUR to Elm Ltd?": "bob",
            "Send the letter to Ms Hopper?": "ada",
        }.items():
            headers = {"X-Abeyance-Principal": who}
            path = f"/runs/{started[request]}/respond"
            http.post(path, json={"response": True}, headers=headers).raise_for_status()
        until(lambda: len(http.get("/interrupts").json()["items"]) == 6, "six questions")  # noqa: PLR2004 all but the held one
    time.sleep(1)


def runs(api: str, graph: str) -> list[str]:
    """The ids of the runs of a graph."""
    listed = httpx.get(f"{api}/runs", params={"graph": graph}, trust_env=False).json()["items"]
    return [str(run["run_id"]) for run in listed]


if __name__ == "__main__":
    main()

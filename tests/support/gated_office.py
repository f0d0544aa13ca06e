"""An API that requires tokens, a worker that pays, callers with various rights, and runs at stages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
from pydantic import BaseModel
from stack import Api, app_for, new_id, problem, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import END, START, Context, Graph, append

APPROVE: Final = "refunds:approve"
YES: Final = {"approved": True}
PEOPLE: Final[Mapping[str, tuple[str, ...]]] = {
    "intern": ("runs:steer", "runs:read"),
    "operator": ("runs:control", "runs:read"),
    "starter": ("runs:start",),
    "clerk": ("runs:start", "runs:read", "runs:respond"),
    "approver": (APPROVE, "runs:respond", "runs:read"),
    "chief": ("runs:start", "runs:read", "runs:respond", "runs:steer", "runs:control", APPROVE),
    # May change the course of a run, and nothing else.
    "auditor": ("runs:control", "runs:read", APPROVE),
    # May not read.
    "controller": ("runs:control",),
    "warden": ("runs:control", "runs:respond", APPROVE),
    "responder": ("runs:respond",),
    # Names that only resemble the needed capabilities.
    "odd": ("RUNS:CONTROL", "runs:*", "refunds:*", "refunds", " runs:control", "Refunds:approve"),
}


class Decision(BaseModel):
    approved: bool


class Refund(BaseModel):
    order_id: str = "A-7"
    amount: float = 250
    letter: str = "please"
    decision: Decision | None = None
    log: Annotated[list[str], append] = []


def _assess(graph: Graph) -> None:
    @graph.node(retries=0)
    async def assess(state: Refund) -> dict[str, Any]:
        return {"log": [f"assessed {state.amount:g}"]}


def refund(paid: list[str]) -> Graph:
    """Return the graph of the README: assess -> approve -> pay."""
    graph = Graph("refund", state=Refund)
    _assess(graph)

    @graph.node(retries=0)
    async def pay(state: Refund, ctx: Context) -> dict[str, Any]:
        paid.append(ctx.run_id)
        return {"log": [f"PAID {state.amount:g} to {state.order_id}"]}

    graph.interrupt(
        "approve",
        prompt="Refund {amount} for {order_id}?",
        response=Decision,
        answer_to="decision",
        requested_capability=APPROVE,
        timeout="P2D",
        on_timeout="halt",
    )
    graph.edge(START, "assess")
    graph.route("assess", lambda s: "approve" if s.amount > 100 else "pay", to=["approve", "pay"])
    graph.edge("approve", "pay", when={"decision.approved": True})
    graph.edge("approve", END, when="else")
    return graph


def open_graph() -> Graph:
    """Return a graph whose question requires no capability."""
    graph = Graph("open", state=Refund)
    _assess(graph)
    graph.interrupt("note", prompt="All right?", answer_to="letter")
    graph.edge(START, "assess")
    graph.edge("assess", "note")
    return graph


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run at one of its stages, its conversation, and its open questions there."""

    run_id: str
    talk: str
    interrupts: tuple[str, ...] = ()


class Office:
    """The stack, and one run at each stage, shared by tests that must not change it."""

    def __init__(self, api: Api, site: Site, paid: list[str], tokens_file: Path) -> None:
        self.api = api
        self.site = site
        self.paid = paid
        self.tokens_file = tokens_file
        self._standing: dict[str, Case] = {}

    async def call(
        self, who: str, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx.Response:
        """Call the API as `who`, and return the response. `headers` have underscores for hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.api.http.request(
            method, path, json=body, headers={"Authorization": f"Bearer {who}", **named}
        )

    async def start(self, graph: str = "refund", who: str = "clerk", **fields: Any) -> Case:
        """Start a run as `who`, in a new conversation."""
        case = Case(run_id=new_id(), talk=new_id("talk"))
        body = {
            "graph": graph,
            "input": {},
            "run_id": case.run_id,
            "conversation_id": case.talk,
            **fields,
        }
        response = await self.call(who, "POST", "/runs", body)
        assert response.status_code == 201, response.text
        return case

    async def view(self, case: Case, *statuses: str) -> dict[str, Any]:
        """Return the view of the run now, or once it has one of these statuses."""
        path = f"/runs/{case.run_id}"
        if statuses:
            path += f"?wait=PT30S&until={','.join(statuses)}"
        found: dict[str, Any] = (await self.call("chief", "GET", path)).json()
        assert not statuses or found["status"] in statuses, found
        return found

    async def asking(self, case: Case) -> Case:
        """Wait until the run asks people, and return it with its questions."""
        return self.seen(case, await self.view(case, "awaiting-input"))

    async def is_asking_another(self, case: Case, before: Mapping[str, Any]) -> bool:
        """Return whether a run has other open questions than before."""
        view = await self.view(case)
        asked = [entry["id"] for entry in view["interrupts"]]
        return bool(asked) and asked != [entry["id"] for entry in before["interrupts"]]

    def seen(self, case: Case, view: Mapping[str, Any]) -> Case:
        ids = tuple(entry["id"] for entry in view["interrupts"])
        return Case(run_id=case.run_id, talk=case.talk, interrupts=ids)

    async def standing(self, stage: str) -> Case:
        """Return a run `before` its gate, at the `open` gate, `answered` and paused, or `paid` for."""
        if stage not in self._standing:
            self._standing[stage] = await self._reached(stage)
        return self._standing[stage]

    async def _reached(self, stage: str) -> Case:
        looks: dict[str, dict[str, Any]] = {
            "before": {"interrupt_before": ["assess"]},
            "paid": {"interrupt_after": ["pay"]},
        }
        case = await self.asking(await self.start(**looks.get(stage, {})))
        if stage in {"before", "open"}:
            return case
        if stage == "answered":
            await self.done("chief", "POST", f"/runs/{case.run_id}/pause", {})
        await self.approve(case)
        if stage == "answered":
            return self.seen(case, await self.view(case))
        return await self.asking(case)

    async def done(
        self, who: str, method: str, path: str, body: Any = None, **headers: str
    ) -> dict[str, Any]:
        """Call the API as `who`, check that the call succeeds, and return its JSON."""
        response = await self.call(who, method, path, body, **headers)
        assert response.is_success, response.text
        found: dict[str, Any] = response.json()
        return found

    async def approve(self, case: Case, who: str = "approver", answer: Any = YES) -> None:
        """Answer the open question of a run."""
        await self.done(who, "POST", f"/runs/{case.run_id}/respond", {"response": answer})

    async def traces(self, case: Case) -> dict[str, Any]:
        """Return everything that would show a change of a run."""
        handle = self.site.temporal.get_workflow_handle(case.run_id)
        described = await handle.describe()
        view = await self.view(case)
        told = ("status", "paused", "pause", "values", "version", "metrics", "interrupts", "reason")
        return {
            "history": described.raw_description.workflow_execution_info.history_length,
            "paid": list(self.paid),
            **{name: view[name] for name in told},
        }

    @asynccontextmanager
    async def untouched(self, case: Case) -> AsyncIterator[None]:
        """Check that calls inside the block leave no trace in the run."""
        before = await self.traces(case)
        yield
        assert await self.traces(case) == before

    async def refused(
        self, who: str, lacking: Iterable[str], method: str, path: str, body: Any = None
    ) -> None:
        """Check that a call is refused, and that the refusal names all missing capabilities."""
        response = await self.call(who, method, path, body)
        if response.is_success and "results" in response.json():
            (told,) = response.json()["results"]
            assert (told["ok"], told["code"]) == (False, "capability_required"), told
        else:
            told = problem(response, 403, "capability_required")
            assert told["capabilities"] == sorted(lacking), (who, told)
            assert told["capability"] == min(lacking)
        assert all(repr(name) in told["detail"] for name in lacking), told


@asynccontextmanager
async def office(temporal: TemporalClient, folder: Path) -> AsyncIterator[Office]:
    """Serve the office. The token of each person is the person's name."""
    grants = [
        {
            "subject": name,
            "sha256": hashlib.sha256(name.encode()).hexdigest(),
            "capabilities": capabilities,
        }
        for name, capabilities in PEOPLE.items()
    ]
    file = folder / "tokens.json"
    file.write_text(json.dumps(grants))
    paid: list[str] = []
    site = Site(temporal, refund(paid), open_graph())
    async with site.worker(), served(app_for(site, tokens_file=file)) as api:
        yield Office(api, site, paid, file)

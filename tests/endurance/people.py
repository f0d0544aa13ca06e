"""The people of the long tests: they start runs, answer, and write messages, over HTTP.

A person who gets no response, or an error that a fault explains, repeats the call with the same key.
Accepted calls are noted, and compared with the results of the runs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import httpx
from office_graphs import ITEMS, STEPS

ENDED: Final = frozenset({"completed", "failed", "halted", "cancelled"})
_MESSAGES: Final = 2
_REJECTS_EACH: Final = 5
_PAUSE: Final = 0.5
_PATIENCE: Final = 900
"""Seconds after which a person stops repeating a call."""


@dataclass
class Accepted:
    """The calls that the service has accepted for one run."""

    number: int
    is_rejected: bool
    answers: dict[str, Any] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    view: Mapping[str, Any] = field(default_factory=dict)


class People:
    """The people who work with the runs.

    `booked` tells whether a side effect happened: a person looks there after the loss of a worker.
    """

    def __init__(self, url: str, *, booked: Callable[[str, str], bool], seed: int = 0) -> None:
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.AsyncClient(base_url=url, timeout=40, trust_env=False, limits=limits)
        self._booked = booked
        self._random = Random(seed)
        self.runs: dict[str, Accepted] = {}
        self.repeated: Counter[str] = Counter()
        self.outcomes = 0
        self.latencies: dict[str, list[float]] = {"start": [], "answer": [], "message": []}

    async def aclose(self) -> None:
        await self._http.aclose()

    async def see_through(self, number: int) -> None:
        """Start a run, write to it, answer its questions, and wait for its end."""
        run_id = f"office-{number}"
        run = Accepted(number, is_rejected=number % _REJECTS_EACH == 0)
        self.runs[run_id] = run
        body = {"graph": "office", "input": {}, "run_id": run_id}
        await self._call("start", "POST", "/runs", body, key=f"start-{run_id}")
        for count in range(_MESSAGES):
            text = f"message {count}"
            message = {"message_id": f"{run_id}-{count}", "text": text, "target": "read"}
            path = f"/runs/{run_id}/messages"
            await self._call("message", "POST", path, message)
            run.messages.append(text)
        while True:
            query = "wait=PT20S&until=awaiting-input,completed,failed,halted,cancelled"
            view = await self._call("view", "GET", f"/runs/{run_id}?{query}")
            if view["status"] in ENDED:
                run.view = view
                return
            questions = view["interrupts"]
            # One answer at a time, in random order.
            if questions:
                question = self._random.choice(questions)
                await self._answer(run_id, run, question)

    async def _answer(self, run_id: str, run: Accepted, question: Mapping[str, Any]) -> None:
        match question["name"], question["kind"]:
            case "legal", _:
                response: Any = run.number % 2 == 0
            case "finance", _:
                response = f"customer {run.number}"
            case _, "approval":
                response = {"approved": not run.is_rejected}
            case _, "outcome":
                self.outcomes += 1
                is_done = self._booked(run_id, "charge")
                response = (
                    {"action": "done", "result": "charged"} if is_done else {"action": "retry"}
                )
            case name, kind:
                raise AssertionError(f"{run_id} asks {name!r} of the kind {kind!r}")
        path = f"/interrupts/{question['id']}/respond"
        key = f"answer-{question['id']}"
        await self._call("answer", "POST", path, {"response": response}, key=key)
        run.answers[question["name"]] = response

    async def _call(
        self, what: str, method: str, path: str, body: Any = None, key: str | None = None
    ) -> Any:
        """Repeat a call until it succeeds. Fail for a refusal that no fault explains."""
        headers = {} if key is None else {"Idempotency-Key": key}
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE
        while True:
            began = loop.time()
            try:
                response = await self._http.request(method, path, json=body, headers=headers)
            except httpx.TransportError:
                problem = "no answer"
            else:
                if response.is_success:
                    if what in self.latencies:
                        self.latencies[what].append(loop.time() - began)
                    return response.json()
                problem = f"{response.status_code} {response.text[:400]}"
                # An API that has just started may not see earlier writes yet, and answer 404.
                assert response.status_code in {404, 429, 502, 503, 504}, f"{path}: {problem}"
            self.repeated[problem[:3] if problem[0].isdigit() else problem] += 1
            assert loop.time() < until, f"{path}: {problem}"
            await asyncio.sleep(_PAUSE)


def faults_of(
    runs: Mapping[str, Accepted], bookings: Iterable[tuple[str, str, str]]
) -> tuple[Sequence[str], int]:
    """Return what was lost or done twice, and how many calls were repeated with the same key."""
    calls: dict[str, dict[str, list[str]]] = {run_id: {} for run_id in runs}
    for key, run_id, item in bookings:
        calls[run_id].setdefault(item, []).append(key)
    faults = []
    repeated = 0
    for run_id, run in runs.items():
        wanted = {*STEPS, *(f"item-{number}" for number in range(ITEMS))}
        if not run.is_rejected:
            wanted.add("charge")
        done = calls[run_id]
        if done.keys() != wanted:
            faults.append(f"{run_id} did {sorted(done)} and not {sorted(wanted)}")
        faults += [
            f"{run_id} did {item!r} twice, with the keys {keys}"
            for item, keys in done.items()
            if len({*keys}) > 1 or (item == "charge" and len(keys) > 1)
        ]
        repeated += sum(len(keys) - 1 for keys in done.values())
        faults += _result_faults(run_id, run)
    return faults, repeated


def _result_faults(run_id: str, run: Accepted) -> list[str]:
    view = run.view
    if view.get("status") != "completed":
        return [f"{run_id} is {view.get('status')}: {view.get('error')}"]
    values = view["values"]
    charge = "denied" if run.is_rejected else "success"
    undelivered = [message["text"] for message in view.get("undelivered") or ()]
    came_to = {
        "legal": values["legal"],
        "finance": values["finance"],
        "sent": values["sent"],
        # If an MCP call is lost, nobody knows whether it ran, and the model is told that it failed.
        "report": values["report"].removeprefix("add failed, ").removeprefix("add success, "),
        "messages": sorted([*values["heard"], *undelivered]),
    }
    wanted = {
        "legal": run.answers.get("legal"),
        "finance": run.answers.get("finance"),
        "sent": ITEMS,
        "report": f"charge {charge}",
        "messages": sorted(run.messages),
    }
    return [
        f"{run_id} has {name} {came_to[name]!r} and not {wanted[name]!r}"
        for name in wanted
        if came_to[name] != wanted[name]
    ]

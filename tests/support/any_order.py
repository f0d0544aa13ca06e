"""Programs of random operations on one run: what people, programs and operators may do, right or wrong.

All that is drawn is drawn from the seed; when the run comes to what is sent is not in our hands.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any, Literal, TypeAlias

import drawn_orders as drawn
from kept_promises import temporal_knows
from mixed_graphs import GRAPHS
from temporal_site import ANYBODY, Site
from temporalio.api.workflowservice.v1 import (
    PauseWorkflowExecutionRequest,
    UnpauseWorkflowExecutionRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.converter import decode_search_attributes
from tried_calls import PATIENCE, Caller, Said
from witness import Witness

from abeyance import Principal, commands, views
from abeyance.core.json import Json
from abeyance.history.description import describe

Operation: TypeAlias = Callable[[Random], Awaitable[Said]]


class Program:
    """A run, and chance that does things to it. `log` tells what was done.

    `accepted` are the answers that got a receipt, by interrupt; `admitted` the ids of messages that got
    one, of those that were `sent`. `taken_by_hand`: messages were taken in the name of a visit.

    Of local nodes (`sprints`) a failure may be found that is not ours: the SDK may replay the result of a
    local activity and what comes beside it in another order than they came in (ADR 13).
    """

    def __init__(self, temporal: TemporalClient, seed: int, graph: str) -> None:
        self.random = Random(seed)
        self.witness = Witness()
        self.graph = GRAPHS[graph](self.random, self.witness)
        self.site = Site(temporal, self.graph, patience=PATIENCE)
        self.run_id = f"any-{seed}-{uuid.uuid4().hex[:8]}"
        # A run leaves its conversation by a local activity.
        self.conversation = f"talk-{self.run_id}" if graph == "sprints" else None
        self.log: list[str] = []
        self.accepted: dict[str, Json] = {}
        self.admitted: set[str] = set()
        self.sent: set[str] = set()
        self.taken_by_hand = False
        self._nodes = [*self.graph.build().nodes]
        self._limits = drawn.limits(self.random)
        self._on_error = self.random.choice([None, "interrupt"])
        self._before = self.random.choice([(), (), (), "*"])
        self._tempo = self.random.choice([0.0, 0.2, 1.0])
        self._caller = Caller(self.site, self.run_id)
        self._worker = AsyncExitStack()
        self._door = asyncio.Lock()
        self._is_up = False
        self._number = 0
        self._too_late = 0

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """The run, and a worker that comes and goes."""
        self.log.append(f"{self.graph.name}, {self._on_error}, {self._before}: {self._limits}")
        try:
            # A conversation has to be asked before a run of it can start.
            if self.conversation is not None or self.random.random() < 0.7:
                await self._worker_comes()
            await self._start()
            yield
        finally:
            await self._worker.aclose()

    async def _start(self, **input_: Json) -> None:
        await self.site.client.runs.start(
            self.graph,
            input_,
            run_id=self.run_id,
            limits=self._limits,
            conversation_id=self.conversation,
            on_error=self._on_error,
            interrupt_before=self._before,
        )

    # The program

    async def play(self, steps: int) -> None:
        """Do as many things, one after another or a few at once; few more after the end."""
        for _ in range(steps):
            if self._too_late > 2:
                return
            if self.random.random() < 0.25:
                several = [self._operation() for _ in range(self.random.randint(2, 6))]
                await asyncio.gather(*(self._do(*each, alone=False) for each in several))
            else:
                await self._do(*self._operation(), alone=True)
            pause = self.random.choice([0, 0, 0.005, 0.03, 0.1, 0.25])
            await asyncio.sleep(pause * self._tempo)

    def _operation(self) -> tuple[str, Operation]:
        kinds: dict[str, tuple[int, Operation]] = {
            "respond": (30, self._respond),
            "message": (26, self._message),
            "resume": (9, self._resume),
            "pause": (8, self._pause),
            "junk": (6, self._junk),
            "look": (5, self._look),
            "edit values": (5, self._edit_values),
            "edit deadline": (5, self._edit_deadline),
            "clear": (4, self._clear),
            "take": (4, self._take),
            "worker": (4, self._bounce),
            "native pause": (3, self._native_pause),
            "start again": (2, self._start_again),
            "cancel": (1, self._cancel),
            "evict": (1, self._evict),
        }
        if not self._caller.is_served and self.random.random() < 0.3:
            return "serve", self._native_pause if self._is_up else self._bounce
        weights = [weight for weight, _ in kinds.values()]
        (name,) = self.random.choices([*kinds], weights)
        return name, kinds[name][1]

    async def _do(self, name: str, operation: Operation, *, alone: bool) -> None:
        # Each has chance of its own: those who act at once draw the same, whoever is first.
        own = Random(self.random.getrandbits(64))
        self._number += 1
        number = self._number
        before = await self._quiet() if alone else None
        said = await operation(own)
        self.log.append(f"{number} {name}: {said}")
        self._too_late += said.code in ("not_running", "run_finished", "NOT_FOUND")
        if before is not None and said.became == "refused":
            after = await self._quiet()
            assert after is not None, f"{name} was refused ({said}), and something moves"
            assert after[0] == before[0], f"{name} was refused ({said}), and changed the view"
            assert said.is_sent or after[1] == before[1], f"{name}: {said}, but in the history"

    async def _quiet(self) -> tuple[views.RunView, int] | None:
        """The view and the length of the history, if nothing will happen by itself."""
        if not self._caller.is_served:
            return None
        view = await self.site.client.run(self.run_id).view()
        if view.degraded or view.status not in ("awaiting-input", "paused") or view.running:
            return None
        due = [view.pause.deadline if view.pause else None, *(e.deadline for e in view.interrupts)]
        if view.queue_depth or view.ended_at or any(moment is not None for moment in due):
            return None
        described = await self._caller.handle.describe()
        again = await self.site.client.run(self.run_id).view()
        return (again, described.history_length) if again == view else None

    # What people do

    async def _respond(self, random: Random) -> Said:
        client = self.site.client
        found = await self._caller.tried(client.run(self.run_id).interrupts(status="all"))
        interrupts: list[views.InterruptView] = found.value or []
        if not interrupts:
            return await self._caller.update("respond", {"response": True})
        open_ = [each for each in interrupts if each.status == "open"]
        entry = random.choice(open_ if open_ and random.random() < 0.85 else interrupts)
        order = drawn.answers(random, entry, open_)
        if random.random() < 0.9:
            return await self._answer(order, random)
        both = [self._answer({**order, "note": note}, random) for note in ("one", "two")]
        said = await asyncio.gather(*both)
        return next((each for each in said if each.became == "done"), said[0])

    async def _answer(self, order: dict[str, Any], random: Random) -> Said:
        if random.random() < 0.05:
            no_json = {"response": random.choice(["\ud800", 1e400])}
            return await self._caller.update("respond", no_json, malformed=True)
        if random.random() < 0.3:
            said = await self._caller.update("respond", order)
            receipts = said.value["receipts"] if said.became == "done" else []
            found = [(each["interrupt_id"], each["replayed"]) for each in receipts]
        else:
            principal = ANYBODY if random.random() < 0.85 else Principal(subject="eve")
            said = await self._answered(order, principal)
            found = [(each.interrupt_id, each.replayed) for each in said.value or []]
        for id_, replayed in found:
            if not replayed:
                assert id_ not in self.accepted, f"{id_} was accepted twice"
                self.accepted[id_] = order.get("responses", {}).get(id_, order.get("response"))
        return said

    async def _answered(self, order: dict[str, Any], principal: Principal) -> Said:
        given = commands.Respond(**order, principal=principal, key=uuid.uuid4().hex)
        call = self.site.client.run(self.run_id).respond_to(given)
        return await self._caller.tried(call, what=str(order))

    async def _message(self, random: Random) -> Said:
        return await self._send(drawn.message(random, self._nodes), random)

    async def _send(self, order: dict[str, Any], random: Random) -> Said:
        run = self.site.client.run(self.run_id)
        self.sent.add(order["message_id"])
        ways = [run.signal_message, run.send_message, run.pause_and_send_message]
        way = random.choice([*ways, *"ssu"])
        if way == "s" or "\ud800" in order["text"]:
            return await self._caller.signal("steer", order)
        if isinstance(way, str):
            said = await self._caller.update("send_message", order)
            is_new = said.became == "done"
        else:
            what = f"{way.__name__} {order}"
            call = way(commands.SteerMessage(**order))
            said = await self._caller.tried(call, what=what)
            receipt = said.value
            is_new = isinstance(receipt, views.MessageReceipt) and not receipt.duplicate
            is_new = is_new and receipt.queue_depth is not None
        if is_new:
            self.admitted.add(order["message_id"])
        return said

    async def _pause(self, random: Random) -> Said:
        order = drawn.pause(random, self._nodes)
        if random.random() < 0.5:
            return await self._caller.signal("pause", *random.choice([(), (order,), (order,)]))
        call = self.site.client.run(self.run_id).control(commands.Pause(**order))
        return await self._caller.tried(call, what=str(order), is_sent=True)

    async def _resume(self, random: Random) -> Said:
        if random.random() < 0.5:
            return await self._caller.signal("resume", *random.choice([(), ({"actor": "x"},)]))
        return await self._caller.tried(self.site.client.run(self.run_id).resume())

    async def _cancel(self, random: Random) -> Said:
        if random.random() < 0.3:
            return await self._caller.tried(self._caller.handle.cancel(), what="natively")
        order = commands.Cancel(mode=random.choice(["graceful", "now"]), actor="bob")
        return await self._caller.tried(self.site.client.run(self.run_id).control(order))

    async def _clear(self, random: Random) -> Said:
        if random.random() < 0.5:
            return await self._caller.update("clear_messages", *random.choice([(), ({},)]))
        return await self._caller.tried(self.site.client.run(self.run_id).clear_messages())

    async def _edit_values(self, random: Random) -> Said:
        client = self.site.client
        seen = await self._caller.tried(client.run(self.run_id).view())
        version = seen.value.version if seen.became == "done" else 1
        if random.random() < 0.5:
            return await self._caller.update("edit_values", drawn.edit(random, version))
        patch = {"count": 3}
        call = client.run(self.run_id, self.graph).edit_values(
            patch, version=version, principal=ANYBODY
        )
        return await self._caller.tried(call)

    async def _edit_deadline(self, random: Random) -> Said:
        client = self.site.client
        found = await self._caller.tried(client.run(self.run_id).interrupts(status="all"))
        order = drawn.deadline(random, [each.id for each in found.value or []])
        if random.random() < 0.5:
            return await self._caller.update("edit_deadline", order)
        call = client.run(self.run_id).edit(commands.EditDeadline(**order, principal=ANYBODY))
        return await self._caller.tried(call, what=str(order))

    # What nobody should do

    async def _junk(self, random: Random) -> Said:
        value = drawn.junk(random)
        if random.random() < 0.6:
            name = random.choice(["pause", "resume", "steer", "steer", "nothing"])
            return await self._caller.signal(name, value)
        updates = ["respond", "send_message", "take_messages", "edit_values", "edit_deadline", "no"]
        return await self._caller.update(random.choice(updates), value, malformed=True)

    async def _take(self, random: Random) -> Said:
        self.taken_by_hand = True
        order = drawn.take(random, self.graph.name, self._nodes)
        return await self._caller.update("take_messages", order)

    async def _evict(self, random: Random) -> Said:
        # Whoever was active since then stays, and so does this one.
        return await self._caller.update("evict", {"inactive_since": "2020-01-01T00:00:00Z"})

    async def _start_again(self, random: Random) -> Said:
        if random.random() < 0.5:
            said = await self._caller.tried(self._start(), is_sent=True)
            return replace(said, what="the same")
        said = await self._caller.tried(self._start(count=9), is_sent=True)
        assert said.became != "done", "another run was started under the same id"
        return said

    # What operators do

    async def _worker_comes(self) -> None:
        async with self._door:
            if not self._is_up:
                await self._worker.enter_async_context(self.site.worker())
                self._is_up = self._caller.is_served = True

    async def _worker_goes(self) -> None:
        async with self._door:
            if self._is_up:
                self._is_up = self._caller.is_served = False
                await self._worker.aclose()

    async def _bounce(self, random: Random) -> Said:
        if self._is_up:
            await self._worker_goes()
            await asyncio.sleep(random.choice([0, 0.05]))
            if random.random() < 0.4:
                return Said(became="done", what="went")
        await self._worker_comes()
        return Said(became="done", what="came")

    async def _native_pause(self, random: Random) -> Said:
        service = self.site.temporal.workflow_service
        about = {
            "namespace": self.site.temporal.namespace,
            "workflow_id": self.run_id,
            "request_id": uuid.uuid4().hex,
        }
        call: Awaitable[Any] = (
            service.unpause_workflow_execution(UnpauseWorkflowExecutionRequest(**about))
            if await self._caller.is_natively_paused()
            else service.pause_workflow_execution(PauseWorkflowExecutionRequest(**about))
        )
        self._caller.is_served = False
        said = await self._caller.tried(call)
        self._caller.is_served = self._is_up and not await self._caller.is_natively_paused()
        return said

    async def _look(self, random: Random) -> Said:
        run = self.site.client.run(self.run_id)
        reads: list[Callable[[], Awaitable[Any]]] = [
            *(run.view, run.interrupts, run.messages, run.transcript, run.result),
            *([lambda: self._compare(self.run_id)] * 5),
        ]
        return await self._caller.tried(random.choice(reads)(), is_sent=True)

    async def _compare(self, run_id: str) -> None:
        """Hold what Temporal knows of the run against what it says, if nothing moved meanwhile."""
        view = await self.site.client.run(run_id).view()
        described = await describe(self.site.temporal, self.site.settings.task_queue, run_id)
        is_at_rest = view.status in ("awaiting-input", "paused") and not view.degraded
        if is_at_rest and await self.site.client.run(run_id).view() == view:
            attributes = decode_search_attributes(described._info.search_attributes)
            temporal_knows(view, attributes, described.memo)

    # How every program ends

    async def end(self, *, seconds: float = 40) -> views.RunView:
        """Do what is needed until the run has ended; its view then."""
        client, loop = self.site.client, asyncio.get_running_loop()
        began = loop.time()
        self.log.append("towards the end")
        await self._worker_comes()
        while await self._caller.is_natively_paused():
            await self._native_pause(self.random)
        while (spent := loop.time() - began) < seconds:
            view = await client.run(self.run_id).view()
            if view.ended_at is not None:
                return view
            if spent > seconds / 2:
                mode: Literal["graceful", "now"] = "now" if spent > seconds * 0.75 else "graceful"
                self.log.append(f"it does not end by itself: {view}")
                await self._caller.tried(client.run(self.run_id).cancel(mode=mode))
            if view.paused:
                await self._caller.tried(client.run(self.run_id).resume())
            for entry in view.interrupts:
                said = await self._answered({"responses": {entry.id: drawn.answer(entry)}}, ANYBODY)
                if said.became == "done" and not said.value[0].replayed:
                    self.accepted[entry.id] = drawn.answer(entry)
                self.log.append(f"answered {entry.name} {entry.address}: {said}")
            until = frozenset({"awaiting-input", "paused"})
            await client.run(self.run_id).wait(until=until, timeout=1.0)
        raise AssertionError(f"the run does not end: {await client.run(self.run_id).view()}")

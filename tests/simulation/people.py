"""People who answer, write, control and edit. Each has capabilities, and some have too few.

They call the run with our own client, over a connection that loses calls. A person who gets no response
calls again with the same key.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

import drawn_orders as drawn
from core_runs import BOSS, DEPUTY, PEOPLE
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from abeyance import Graph, Refusal, commands
from abeyance.client import Client
from abeyance.commands import REWIND_TO_START
from abeyance.core.json import Json
from abeyance.core.ledger import Interrupt
from abeyance.core.policy import EVERYTHING, Principal
from abeyance.core.spec import GraphSpec
from abeyance.errors import Unavailable
from abeyance.records import runs
from tests.simulation import purse
from tests.simulation.chance import Chance
from tests.simulation.promises import Promises
from tests.simulation.purse import Purse
from tests.simulation.server import Server
from tests.simulation.versions import Versions

_WEIGHTS: Final = {
    "answer": 12,
    "message": 5,
    "pause": 3,
    "resume": 3,
    "edit values": 2,
    "edit deadline": 2,
    "claim": 2,
    "take back": 1,
    "clear": 1,
    "cancel": 1,
    "junk": 1,
}
_OF_RETRIES: Final = {"retry": 6, "cancel": 3}
_OF_GRANTS: Final = {"answer": 40, "revoke": 4}
_OF_MIGRATIONS: Final = {"migrate": 14}
_OF_REWINDS: Final = {"rewind": 6, "terminate": 1}
_OWNER: Final = Principal(subject="owner", capabilities=(EVERYTHING,))
"""A caller with every capability that a graph can ask for: a rewind needs all of them."""
_PATCHES: Final = [None, None, None, {"flag": True}, {"count": 1}, {"nope": 1}]
_GRAPHS: Final[Sequence[Literal["pinned", "today"]]] = ("pinned", "pinned", "today")
_MODES: Final[Sequence[Literal["after-node", "now"]]] = ("after-node", "now")
_WAYS: Final[Sequence[Literal["graceful", "now"]]] = ("graceful", "now")


class People:
    """All the people who call one run."""

    def __init__(
        self,
        server: Server,
        chance: Chance,
        client: Client,
        run_id: str,
        promises: Promises,
        *,
        graph: Callable[[], Graph],
        purse: Purse | None = None,
        versions: Versions | None = None,
    ) -> None:
        self._graph = graph
        self._purse, self._versions = purse, versions
        self._server, self._chance = server, chance
        self._client, self._run = client, client.run(run_id)
        self._promises = promises
        self._keys = 0
        self._rewinding = asyncio.Lock()

    def act(self) -> tuple[str, Callable[[], Awaitable[Any]]]:
        """Draw an action: return its name, and the call of a person who is drawn too."""
        chance = self._chance
        weights = _WEIGHTS | (_OF_REWINDS if self._server.has_rewinds else {})
        if self._server.has_retries:
            weights |= _OF_RETRIES
        if self._purse is not None:
            weights |= _OF_GRANTS
        if self._versions is not None:
            weights |= _OF_MIGRATIONS
        (name,) = chance.choices([*weights], [*weights.values()])
        often = [BOSS, BOSS] if self._purse is None else [purse.APPROVER, _OWNER] * 4
        if self._versions is not None:
            often += [_OWNER] * 6
        who = chance.choice([BOSS, *PEOPLE, *often, DEPUTY])
        return name, getattr(self, f"_{name.replace(' ', '_')}")(who)

    async def tried(self, name: str, call: Callable[[], Awaitable[Any]]) -> None:
        """Make a call; repeat it if there is no response, and sometimes even if there is one."""
        is_repeated = not self._server.is_calm and self._chance.happens(0.15)
        for _ in range(3):
            try:
                result = await call()
            except Unavailable as error:
                self._server.note(f"{name}: no answer ({error})")
                continue
            except Refusal as refusal:
                self._server.note(f"{name}: refused, {refusal.code}")
            except (WorkflowUpdateFailedError, RPCError) as error:
                self._server.note(f"{name}: {error}")
            else:
                self._server.note(f"{name}: {'done' if result is None else result}"[:300])
                if is_repeated:
                    is_repeated = False
                    continue
            return

    def _key(self) -> str:
        self._keys += 1
        return f"key-{self._keys}"

    def _open(self) -> list[Interrupt]:
        state = self._promises.state
        return [] if state is None else [*state.ledger.open.values()]

    # How every run ends

    async def do_their_part(self) -> None:
        """Answer every open question, resume, and migrate a run whose code no worker has."""
        state, versions = self._promises.state, self._versions
        if state is not None and versions is not None and versions.lacks(state.spec):
            await self.tried("migrate", self._migrates(versions, _OWNER))
        if state is not None and state.pause is not None:
            await self.tried("resume", self._run.resume)
        for who in (BOSS, DEPUTY):
            asked = [each for each in self._open() if each.status == "open"]
            answers = {each.id: answer(each) for each in asked}
            if answers:
                seen = {each.id: each.digest for each in asked}
                await self.tried("answer", partial(self.answered, answers, seen, who, self._key()))

    async def cancels(self) -> None:
        await self.tried("cancel", partial(self._run.cancel, mode="now"))

    # Actions

    def _answer(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        chance, key = self._chance, self._key()
        is_wrong = chance.happens(0.1)
        several = chance.happens(0.2)
        chosen = chance.below(4)
        kinds = chance.below(4 if self._purse is None else len(purse.ANSWERS))
        looks = self._server.has_rewinds and chance.happens(0.5)
        answers: dict[str, Json] = {}
        seen: dict[str, str] = {}

        async def call() -> Any:
            if not answers:
                asked = self._open()
                asked = asked if several else asked[chosen % len(asked) :][:1] if asked else []
                answers.update({each.id: answer(each, kinds) for each in asked})
                seen.update({each.id: each.digest for each in asked if looks})
                if is_wrong or not answers:
                    answers[f"{self._run.run_id}.0123456789abcdef"] = True
            return await self.answered(answers, seen, who, key)

        return call

    async def answered(
        self, answers: dict[str, Json], seen: dict[str, str], who: Principal, key: str
    ) -> Any:
        """Answer, and note the accepted answers. `seen` has the digests of the questions as shown."""
        if self._purse is not None:
            self._purse.answers(who)
        receipts = await self._run.respond(answers, principal=who, key=key, digests=seen)
        execution = self._server.execution(self._run.run_id)
        assert execution is not None
        for receipt in receipts:
            if not receipt.replayed:
                self._promises.was_accepted(execution, receipt, answers[receipt.interrupt_id])
        return [(each.interrupt_id, each.replayed) for each in receipts]

    def _message(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        chance = self._chance
        order = {
            "message_id": f"m{chance.below(5)}",
            "text": chance.choice(["a", "b"]),
            "ttl": chance.choice([None, None, 0.4]),
            "target": chance.choice([None, None, "n1", "work"]),
            "action": chance.choice([None, None, "look"]),
        }
        return self._sent(order, who)

    def _sent(self, order: dict[str, Any], who: Principal) -> Callable[[], Awaitable[Any]]:
        message = commands.SteerMessage(**order, sender=who.subject, capabilities=who.capabilities)
        is_signal, pauses = self._chance.happens(0.4), self._chance.happens(0.1)

        async def call() -> Any:
            if is_signal:
                return await self._run.signal_message(message)
            if pauses:
                return await self._run.pause_and_send_message(message)
            receipt = await self._run.send_message(commands.SendMessage(**dict(message)))
            self._promises.admitted.add(receipt.message_id)
            return receipt

        return call

    def _pause(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        chance = self._chance
        mode, timeout = chance.choice(_MODES), chance.choice([None, 0.4, 30])
        on_timeout = chance.choice(["resume", "resume", "halt", "goto:END"])
        key = self._key()
        return lambda: self._run.pause(
            mode=mode, timeout=timeout, on_timeout=on_timeout, principal=who, key=key
        )

    def _resume(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        key = self._key()
        return lambda: self._run.resume(principal=who, key=key)

    def _cancel(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        if self._chance.happens(0.3):
            handle = self._client.temporal.get_workflow_handle(self._run.run_id)
            return handle.cancel
        mode = self._chance.choice(_WAYS)
        return lambda: self._run.cancel(mode=mode, grace=2.0, principal=who)

    def rewinds(self, to: str | None = None) -> Callable[[], Awaitable[Any]]:
        """Rewind the run, to its start or a question."""
        chosen, key = self._chance.below(6), self._key()
        points = [] if to is None else [to]

        async def call() -> Any:
            if not points:
                known = [REWIND_TO_START, *self._promises.watch.opened]
                points.append(known[-chosen % len(known)])
            done = await self._run.rewind(to=points[0], principal=_OWNER, key=key)
            return f"{len(done.discards)} events are discarded"

        return call

    def _rewind(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        del who
        rewind = self.rewinds()
        if self._versions is None:
            return rewind

        async def call() -> Any:
            # Of two rewinds at once, the second would go back to events that the first has discarded.
            async with self._rewinding:
                return await rewind()

        return call

    def _retry(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        return self.retries(who)

    def retries(self, who: Principal = _OWNER) -> Callable[[], Awaitable[Any]]:
        """Retry a run that has ended without completing, maybe with other values or today's graph."""
        key, patch = self._key(), self._chance.choice(_PATCHES)
        which = self._chance.choice(_GRAPHS)

        async def call() -> None:
            run = self._client.run(self._run.run_id, self._graph())
            await run.retry(principal=who, key=key, patch=patch, graph=which)

        return call

    def _migrate(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        versions, chance = self._versions, self._chance
        assert versions is not None
        return self._migrates(
            versions,
            who,
            renames=versions.drawn_renames(chance),
            patch=chance.choice([None, None, {"flag": True}, {"count": 1}, {"nope": 1}]),
            pause=chance.happens(0.7),
            dry_run=chance.happens(0.1),
        )

    def _migrates(
        self,
        versions: Versions,
        who: Principal,
        *,
        renames: Callable[[GraphSpec], Mapping[str, str]] | None = None,
        patch: Mapping[str, Json] | None = None,
        pause: bool = True,
        dry_run: bool = False,
    ) -> Callable[[], Awaitable[Any]]:
        """Migrate the run to today's version, with these renames or the right ones."""
        mapped, key = renames or versions.renames, self._key()
        order: list[Mapping[str, str]] = []

        async def call() -> Any:
            state = self._promises.state
            if not order:
                order.append({} if state is None else mapped(state.spec))
            done = await self._run.migrate(
                renames=order[0], patch=patch, pause=pause, dry_run=dry_run, principal=who, key=key
            )
            if done.before != done.after and not dry_run:
                self._promises.migrated_to.add(done.after)
            return f"from {done.before} to {done.after}, {len(done.obstacles)} obstacles"

        return call

    def _terminate(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        del who
        handle = self._client.temporal.get_workflow_handle(self._run.run_id)
        is_found = self._chance.happens(0.5)

        async def call() -> Any:
            await handle.terminate()
            if is_found:
                await self.finds_the_end()

        return call

    async def finds_the_end(self) -> bool:
        """Record that the run has ended, as a worker does in its rounds. Return whether the records are
        complete: Temporal may have had no room for the rest that the run could not record itself.
        """
        run_id = self._run.run_id
        described = await self._client.temporal.get_workflow_handle(run_id).describe()
        await self._client.janitor.settle(described.raw_description.workflow_execution_info)
        ended = {run_id: described.run_id or ""}
        return not await self._client.records.read(runs.unsettled, ended)

    def _clear(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        key = self._key()
        return lambda: self._run.clear_messages(principal=who, key=key)

    def _edit_values(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        patch = self._chance.choice([{"flag": True}, {"flag": False}, {"count": 1}, {"nope": 1}])
        key = self._key()

        async def call() -> Any:
            state = self._promises.state
            version = 0 if state is None else state.root.version
            order = commands.EditValues(patch=patch, version=version, principal=who, key=key)
            return await self._run.edit(order)

        return call

    def _edit_deadline(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        timeout = self._chance.choice([0.4, 60, None])
        on_timeout = self._chance.choice([None, None, "halt", "goto:END"])
        return self._about_one(
            lambda id_, key: self._run.edit_deadline(
                id_, timeout=timeout, on_timeout=on_timeout, principal=who, key=key
            )
        )

    def _claim(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        run = self._run
        match self._chance.choice(["claim", "release", "reassign"]):
            case "claim":
                return self._about_one(
                    lambda id_, key: run.claim(id_, for_=20, principal=who, key=key)
                )
            case "release":
                return self._about_one(lambda id_, key: run.release(id_, principal=who, key=key))
            case _:
                return self._about_one(
                    lambda id_, key: run.reassign(id_, who.subject, principal=who, key=key)
                )

    def _take_back(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        return self._about_one(lambda id_, key: self._run.take_back(id_, principal=who, key=key))

    def _revoke(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        chosen, purse = self._chance.below(3), self._purse
        assert purse is not None

        async def call() -> Any:
            known = await self._client.grants.list(_OWNER)
            if not known:
                return "nothing to revoke"
            grant = known[chosen % len(known)]
            await self._client.grants.revoke(grant.id, principal=who)
            purse.was_revoked(grant.id, self._server.loop.wall())
            return f"{grant.id} is revoked"

        return call

    def _about_one(
        self, call: Callable[[str, str], Awaitable[Any]]
    ) -> Callable[[], Awaitable[Any]]:
        chosen, key = self._chance.below(3), self._key()
        asked: list[str] = []

        async def about() -> Any:
            if not asked:
                known = self._open()
                asked.append(known[chosen % len(known)].id if known else "nothing")
            return await call(asked[0], key)

        return about

    def _junk(self, who: Principal) -> Callable[[], Awaitable[Any]]:
        del who
        handle = self._client.temporal.get_workflow_handle(self._run.run_id)
        name = self._chance.choice(["pause", "resume", "steer", "visit_blocked", "nothing"])
        value = drawn.junk(self._chance)
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            value = "no text"
        return lambda: handle.signal(name, value)


def answer(entry: Interrupt, kind: int = 0) -> Json:
    """Return an answer in the form that the question asks for."""
    match entry.kind:
        case "static":
            return None
        case "approval":
            return purse.ANSWERS[kind]
        case "error":
            return {"action": ["fail", "retry", "skip", "retry"][kind % 4]}
        case _ if entry.response_schema == {"type": "boolean"}:
            return [True, False, True, True][kind % 4]
        case _:
            return [True, False, None, ["x"]][kind % 4]

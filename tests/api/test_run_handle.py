"""The same tests against each `RunHandle`: over Temporal, over HTTP and in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import pytest
import pytest_asyncio
from changed_graphs import Payments
from refusals import faults, refused
from sample_graphs import PIXEL
from stack import Api, new_id
from temporal_site import Site

from abeyance import Graph, RunHandle, Started, testing
from abeyance.client import TemporalRun
from abeyance.errors import Code
from abeyance.http import HttpClient
from abeyance.records.audit_chain import verify

Begin: TypeAlias = Callable[..., Awaitable[RunHandle]]

WAITING = frozenset({"awaiting-input"})


@pytest_asyncio.fixture(params=["temporal", "http", "memory"])
async def begin(request: pytest.FixtureRequest, site: Site, api: Api) -> AsyncIterator[Begin]:
    """Starts a run, if need be with the graph from before a deploy, and returns its handle."""

    async def over_temporal(
        input: dict[str, Any], name: str = "gated", earlier: Graph | None = None
    ) -> RunHandle:
        graph = site.graphs[name]
        started = await site.client.runs.start(earlier or graph, input, run_id=new_id())
        return site.client.run(started.run_id, graph)

    async def over_http(
        input: dict[str, Any], name: str = "gated", earlier: Graph | None = None
    ) -> RunHandle:
        if earlier is not None:
            return client.run(await site.start(input, graph=earlier))
        started = await client.runs.start(name, input, run_id=new_id())
        assert started == Started(run_id=started.run_id, created=True, view=started.view)
        assert started.view is not None
        assert started.view.graph == name
        return client.run(started.run_id)

    async def in_memory(
        input: dict[str, Any], name: str = "gated", earlier: Graph | None = None
    ) -> RunHandle:
        run = testing.InMemoryRun(earlier or site.graphs[name], input)
        await run.start()
        run.deploy(site.graphs[name])
        return run

    ways = {"temporal": over_temporal, "http": over_http, "memory": in_memory}
    async with HttpClient(api.url) as client:
        yield ways[request.param]


async def test_a_run_is_read_answered_and_controlled(begin: Begin) -> None:
    run = await begin({"amount": 3})
    view = await run.wait(until=WAITING)
    assert (view.run_id, view.status) == (run.run_id, "awaiting-input")
    (asked,) = await run.interrupts()
    assert (asked.prompt, await run.interrupt(asked.id)) == ("Pay 3?", asked)
    assert await run.interrupt(f"{run.run_id}.0") is None
    assert await refused(run.result()) == Code.NOT_FINISHED
    assert await refused(run.respond(asked.id, {"approved": []})) == Code.INVALID_ANSWER
    assert await refused(run.respond({f"{run.run_id}.0": 1})) == Code.UNKNOWN_INTERRUPT
    assert await refused(run.respond()) == Code.INVALID_BODY

    await run.pause("an audit", timeout="1h")
    paused = (await run.wait(until=frozenset({"paused"}))).pause
    assert paused is not None
    assert paused.reason == "an audit"
    await run.edit_values({"amount": 4}, version=view.version)
    assert await refused(run.edit_values({"amount": 5}, version=view.version)) == Code.STALE
    assert await refused(run.edit_values({"amount": "much"})) == Code.INVALID_INPUT
    await run.resume()
    assert (await run.wait(until=WAITING)).values["amount"] == 4
    (asked,) = await run.interrupts()
    await run.edit_deadline(asked.id, timeout=timedelta(hours=1), on_timeout="goto:late")
    moved = await run.interrupt(asked.id)
    assert moved is not None
    assert (moved.deadline is None, moved.on_timeout) == (False, "goto:late")
    await run.edit_deadline(asked.id, deadline=None)
    assert await refused(run.edit_deadline(asked.id)) == Code.INVALID_BODY

    answer = {"approved": True}
    shown = {asked.id: str(asked.digest)}
    (receipt,) = await run.respond({asked.id: answer}, digests=shown, key="k")
    (again,) = await run.respond(asked.id, answer)
    (repeated,) = await run.respond({asked.id: answer}, digests=shown, key="k")
    assert (receipt.interrupt_id, receipt.replayed) == (asked.id, False)
    assert (again.replayed, repeated.replayed) == (True, True)
    assert await refused(run.clear_messages(key="k")) == Code.IDEMPOTENCY_CONFLICT
    ended = await run.wait()
    assert (ended.status, ended.values["log"]) == ("completed", ["before", f"after {answer}"])
    record = await run.result()
    assert (record.outcome, record.values, record.view) == ("completed", ended.values, ended)
    (settled,) = await run.interrupts(status="answered")
    assert (settled.id, await run.interrupts()) == (asked.id, [])
    lines = [json.loads(line) for line in (await run.audit()).splitlines()]
    assert verify(await run.audit()).faults == ()
    (opened,) = [each["shown"] for each in lines if each["type"] == "interrupt.opened"]
    assert opened["prompt"] == "Pay 3?"
    assert [each["answer"] for each in lines if "answer" in each] == [answer]
    assert [each["patch"] for each in lines if "patch" in each] == [{"amount": 4}]
    assert (lines[-1]["type"], lines[-1]["interrupts"][0]["id"]) == ("end", asked.id)
    other = run.respond(asked.id, {"approved": False})
    assert await refused(other) == Code.ALREADY_ANSWERED
    for call in (run.pause(), run.resume(), run.cancel(), run.steer("late"), run.send("late")):
        assert await refused(call) == Code.NOT_RUNNING


async def test_wrong_arguments_are_refused_in_the_same_words(begin: Begin) -> None:
    run = await begin({})
    await run.wait(until=WAITING)
    (asked,) = await run.interrupts()
    key, naive = "a key", datetime(2030, 1, 1)  # noqa: DTZ001 that is what is wrong
    odd: Any = 5
    none: Any = None
    half = "\ud800"
    calls: dict[str, Awaitable[object]] = {
        "/status: input should be 'open'": run.interrupts(status="old"),
        "/until: 'old' is not a status of a run": run.wait(until=frozenset({"old"})),
        "/timeout: nan is not a number": run.wait(timeout=float("nan")),
        "/timeout: None is not a number": run.wait(timeout=none),
        "/timeout: '5' is not a number of seconds": run.wait(timeout=str(odd)),  # type: ignore[arg-type]
        "/interrupt_id: input should be a valid string (got 5)": run.interrupt(odd),
        "/interrupt_id: input should be a valid string": run.interrupt(none),
        "/address: input should be a valid string (got 5)": run.transcript(odd),
        "/file: input should be a valid object (got 5)": run.file(odd),
        "/file/$file: input should be a valid string": run.file({"$file": odd}),
        "'é' is not a cursor of the run": anext(run.events(after="é")),
        "'' is not a cursor of the run": anext(run.events(after="", follow=False)),
        "the body: the answer is missing": run.respond(),
        "/key: 'a key' is not a key: use 1 to 200": run.respond(response=1, key=key),
        "/note: input should be a valid string (got 5)": run.respond(response=1, note=5),  # type: ignore[arg-type]
        "/timeout: 'soon' is not a duration": run.pause(timeout="soon"),
        "/mode: input should be 'after-node' or 'now' (got None)": run.pause(mode=None),  # type: ignore[arg-type]
        "/grace: input should be greater than or equal to 0": run.cancel(grace=-1),
        "/text: is not JSON": run.steer(half),
        "/metadata: is not JSON": run.send("x", metadata={"x": float("nan")}),
        "/sender: is not a field of this request": run.send("x", sender="eve"),  # type: ignore[call-arg]
        "/deadline: input should have timezone info": run.edit_deadline(asked.id, deadline=naive),
        "/for_: 'soon' is not a duration": run.claim(asked.id, for_="soon"),
        "/interrupt_id: input should be a valid string (got": run.claim(odd),
        "/patch: object should have at least 1 item, not 0": run.edit_values({}, version=1),
        "/patch: input should be a valid object (got 'amount')": run.edit_values("amount"),  # type: ignore[arg-type]
        "/version: is required with a key": run.edit_values({"amount": 1}, key="once"),
        "/responses: input should be a valid object (got 5)": run.respond(5),  # type: ignore[arg-type]
        "/digests: input should be a valid object (got 'x')": run.respond(response=1, digests="x"),  # type: ignore[arg-type]
        "/digests/x: input should be a valid string without": run.respond(
            response=1, digests={"x": half}
        ),
        "/responses: input should be a valid string without": run.respond({half: 1}),
        "/map: input should be a valid string without halves": run.migrate(renames={half: "x"}),
        "/address: input should be a valid string (got '\\ud800')": run.transcript(half),
        "/map: input should be a valid object (got 5)": run.migrate(renames=5),  # type: ignore[arg-type]
        "/dry_run: input should be a valid boolean": run.migrate(dry_run=1),  # type: ignore[arg-type]
        "/pause: input should be a valid boolean": run.migrate(pause=1),  # type: ignore[arg-type]
    }
    for words, call in calls.items():
        code, message, _ = await faults(call)
        assert (code, words in message) == (Code.INVALID_BODY, True), message
    assert await refused(run.edit_values({5: 1}, version=1)) == Code.INVALID_INPUT  # type: ignore[dict-item]
    assert await refused(run.file("")) == Code.NOT_FOUND
    assert await refused(run.retry()) == Code.NOT_FINISHED
    assert (await run.view()).status == "awaiting-input"


async def test_the_interrupt_of_another_run_is_unknown(begin: Begin) -> None:
    run, other = await begin({}), await begin({})
    await other.wait(until=WAITING)
    await run.wait(until=WAITING)
    (asked,) = await other.interrupts()
    theirs = asked.id if other.run_id != run.run_id else f"other.{asked.id[-16:]}"
    for id_ in (theirs, "", "..", "a/b"):
        for call in (run.claim(id_), run.edit_deadline(id_, timeout=60), run.take_back(id_)):
            assert await faults(call) == (
                Code.UNKNOWN_INTERRUPT,
                f"There is no interrupt {id_!r} in this run; list its interrupts to see their ids.",
                ["interrupt_id"],
            )
    (asked,) = await other.interrupts()
    assert asked.claim is None


async def test_an_ended_run_refuses_every_call_in_the_same_words(begin: Begin) -> None:
    run = await begin({})
    await run.wait(until=WAITING)
    (asked,) = await run.interrupts()
    await run.steer("look", message_id="m")
    assert await refused(run.steer("look away", message_id="m")) == Code.MESSAGE_CONFLICT
    await run.respond(asked.id, {"approved": True})
    await run.wait()
    for call in (
        run.pause(),
        run.send("look", message_id="m"),
        run.clear_messages(),
        run.edit_values({"amount": 1}, version=1),
        run.edit_values({"amount": "much"}, version=1),
        run.claim(asked.id),
        run.migrate(),
    ):
        code, message, details = await faults(call)
        assert (code, details) == (Code.NOT_RUNNING, ["ended_at", "run_status"])
        assert message.endswith(" (completed), so nothing can be done to it.")
    assert await run.messages() == []
    assert await refused(run.respond(response={"approved": True})) == Code.RUN_FINISHED
    _, _, details = await faults(run.edit_deadline(asked.id, timeout=60))
    assert details == ["ended_at", "interrupt_id", "run_status", "status"]


async def test_a_yes_is_taken_back_while_it_is_held(begin: Begin) -> None:
    run = await begin({}, "held")
    await run.wait(until=WAITING)
    (asked,) = await run.interrupts()
    assert await refused(run.take_back(asked.id)) == Code.NOT_HELD
    (receipt,) = await run.respond(asked.id, {"approved": True})
    (held,) = await run.interrupts(status="held")

    assert (receipt.status, receipt.held_until) == ("held", held.held_until)
    assert (await run.view()).status == "awaiting-input"
    await run.take_back(asked.id, note="too fast", key="k")
    await run.take_back(asked.id, note="too fast", key="k")
    assert [entry.status for entry in await run.interrupts()] == ["open"]
    await run.respond(asked.id, {"approved": False})
    assert (await run.wait()).values["log"] == ["before", "late"]
    assert await refused(run.take_back(asked.id)) == Code.NOT_RUNNING


async def test_a_question_is_claimed_released_and_reassigned(begin: Begin) -> None:
    run = await begin({})
    await run.wait(until=WAITING)
    (asked,) = await run.interrupts()
    await run.claim(asked.id, for_="1h", key="k")
    await run.claim(asked.id, for_="1h", key="k")
    (claimed,) = await run.interrupts()
    assert claimed.claim is not None
    assert (claimed.claim.until - claimed.claim.at).total_seconds() == 3600
    await run.release(asked.id)
    await run.reassign(asked.id, ["bob", "bob"], note="please")
    (moved,) = await run.interrupts()
    assert (moved.claim, moved.assignees) == (None, ["bob"])
    (receipt,) = await run.respond(asked.id, {"approved": False})
    assert receipt.on_behalf_of is None
    assert await refused(run.respond({asked.id: None}, on_behalf_of="ada")) == Code.ALREADY_ANSWERED
    await run.wait()
    for call in (run.claim(asked.id), run.release(asked.id), run.reassign(asked.id, ["ada"])):
        assert await refused(call) == Code.NOT_RUNNING


async def test_messages_are_sent_with_and_without_a_receipt(begin: Begin) -> None:
    run = await begin({})
    await run.wait(until=WAITING)

    assert await run.steer("be quick", message_id="m1") == "m1"
    receipt = await run.send("be kind", message_id="m2", metadata={"page": 2}, ttl="1h")
    assert (receipt.message_id, receipt.duplicate, receipt.queue_depth) == ("m2", False, 2)
    same = {"metadata": {"page": 2}, "ttl": 3600}
    assert (await run.send("be kind", message_id="m2", **same)).duplicate  # type: ignore[arg-type]
    assert await refused(run.send("be cruel", message_id="m2")) == Code.MESSAGE_CONFLICT
    assert await refused(run.send("hello", target="nowhere")) == Code.UNKNOWN_NODE
    assert [message.text for message in await run.messages()] == ["be quick", "be kind"]

    assert await run.clear_messages(key="once") == 2
    await run.send("again")
    assert await run.clear_messages(key="once") == 2
    assert len(await run.messages()) == 1
    assert (await run.pause_and_send("look", message_id="m3")).queue_depth == 2
    assert (await run.view()).paused
    await run.resume()
    await run.wait(until=WAITING)
    assert (await run.pause_and_send("look", message_id="m3")).duplicate
    assert not (await run.view()).paused


async def test_events_can_be_followed_while_they_happen(begin: Begin) -> None:
    run = await begin({})
    async with aclosing(run.events()) as events:
        first = await anext(events)
    assert (first.type, first.run_id) == ("run.started", run.run_id)

    async def followed() -> list[str]:
        return [event.type async for event in run.events(after=first.id)]

    following = asyncio.create_task(followed())
    await run.wait(until=WAITING)
    await run.pause(on_timeout="goto:nowhere", timeout=60)
    await run.respond(response={"approved": True})

    told = await following
    assert [type_ for type_ in told if type_ in TOLD] == [
        "interrupt.opened",
        "run.awaiting_input",
        "signal.refused",
        "interrupt.answered",
        "run.completed",
    ]
    assert told == [event.type async for event in run.events(after=first.id)]


TOLD = {
    "interrupt.opened",
    "run.awaiting_input",
    "run.paused",
    "signal.refused",
    "interrupt.answered",
    "run.completed",
}


async def test_a_cancelled_run_ends_in_good_order(begin: Begin) -> None:
    run = await begin({})
    await run.wait(until=WAITING)
    await run.cancel("enough", grace="1s")

    ended = await run.wait()
    assert (ended.status, ended.reason) == ("cancelled", "enough")
    assert [entry.status for entry in await run.interrupts(status="all")] == ["cancelled"]
    assert (await run.result()).outcome == "cancelled"


async def test_values_are_edited_only_where_the_graph_is_known(site: Site) -> None:
    run: TemporalRun = site.client.run("any")
    with pytest.raises(ValueError, match="needs the run's graph"):
        await run.edit_values({"amount": 1}, version=1)


async def test_a_file_that_a_question_shows_is_read(begin: Begin) -> None:
    run = await begin({}, "filed")
    await run.wait(until=WAITING)
    (asked,) = await run.interrupts()

    assert await run.file(asked.payload["picture"]) == PIXEL
    assert await refused(run.file("0" * 64)) == Code.NOT_FOUND


async def test_a_run_is_rewound_over_temporal_and_over_http(begin: Begin) -> None:
    run = await begin({"amount": 3})
    await run.wait(until=WAITING)
    (asked,) = await run.interrupts()
    if isinstance(run, testing.InMemoryRun):
        assert await refused(run.rewind(to=asked.id)) == Code.GONE
        return
    await run.respond(asked.id, {"approved": True})
    ended = await run.wait()

    tried = await run.rewind(to=asked.id, patch={"amount": 4}, dry_run=True)
    assert await run.wait() == ended
    for dry_run in (True, False):
        wrong = run.rewind(to=asked.id, patch={"amount": "much"}, dry_run=dry_run)
        assert await refused(wrong) == Code.INVALID_INPUT
    done = await run.rewind(to=asked.id, patch={"amount": 4})

    assert (tried.discards, tried.effects) == (done.discards, done.effects)
    assert [each.node for each in done.effects] == ["gated.after"]
    (again,) = await run.interrupts()
    assert (again.id, again.prompt) == (asked.id, "Pay 4?")
    assert await refused(run.rewind(to=f"{run.run_id}.0")) == Code.UNKNOWN_INTERRUPT
    assert await refused(run.rewind(to="start", patch={"amount": "much"})) == Code.INVALID_INPUT
    await run.rewind(to="start", patch={"amount": 5})
    await run.wait(until=WAITING)
    (first,) = await run.interrupts()
    assert first.prompt == "Pay 5?"
    await run.respond(first.id, {"approved": False})
    assert (await run.wait()).values["log"] == ["before", "late"]
    assert verify(await run.audit()).faults == ()


async def test_a_failed_run_is_retried_once_for_each_key_and_its_events_go_on(
    begin: Begin, payments: Payments
) -> None:
    run = await begin({"amount": 3}, "payment")
    await run.wait(until=WAITING)
    payments.fails = 1
    await run.respond(response=True)
    assert (await run.wait()).status == "failed"
    told = [event async for event in run.events()]
    assert await refused(run.retry(patch={"amount": "much"})) == Code.INVALID_INPUT
    assert await refused(run.retry(patch={"amount": "much"}, graph="today")) == Code.CANNOT_MIGRATE
    payments.done.clear()

    for _ in range(2):
        await run.retry(patch={"amount": 4}, graph="today", key="once")
    ended = await run.wait()

    # The steps before the failure are not run again.
    assert (ended.values["log"], payments.done) == (["check", "payout 4"], ["pay"])
    more = [event.type async for event in run.events(after=told[-1].id)]
    assert (told[-1].type, more[0], more[-1]) == ("run.failed", "run.retried", "run.completed")
    assert await refused(run.retry()) == Code.RUN_FINISHED


async def test_a_run_is_tried_then_moved_to_the_graph_of_today(
    begin: Begin, payments: Payments
) -> None:
    run = await begin({"amount": 3}, "payment", payments.graph())
    before = (await run.wait(until=WAITING)).graph_version
    (asked,) = await run.interrupts()
    tried = await run.migrate(patch={"amount": "much"}, dry_run=True)
    assert await refused(run.migrate(patch={"amount": "much"})) == Code.CANNOT_MIGRATE
    moves: dict[str, Any] = {"renames": {"pay": "payout"}, "pause": True, "key": "k"}
    done, again = await run.migrate(**moves), await run.migrate(**moves)
    assert await refused(run.migrate(key="k")) == Code.IDEMPOTENCY_CONFLICT
    await run.respond(asked.id, True)
    ended = await run.wait()

    assert (tried.dry_run, tried.after) == (True, done.after)
    assert ("value", "amount") in [(each.what, each.name) for each in tried.obstacles]
    assert (done.before, again.after) == (before, done.after)
    assert (ended.graph_version, ended.values["log"]) == (done.after, ["check", "payout 3"])
    (event,) = [each async for each in run.events(follow=False) if each.type == "run.migrated"]
    assert (event.data["from_version"], event.data["to_version"]) == (before, done.after)


async def test_the_transcript_of_one_of_several_agents_is_read_by_address(begin: Begin) -> None:
    run = await begin({"task": "pay much"}, "teams")
    await run.wait(until=WAITING)
    lead, clerk = "graph:teams;node:work;agent:lead", "tool:clerk:call_9;agent:clerk"
    code, message, details = await faults(run.transcript())

    assert (code, details) == (Code.INVALID_BODY, ["addresses", "errors"])
    assert f"{lead};{clerk}" in message
    said = {name: await run.transcript(name) for name in (lead, f"{lead};{clerk}")}
    for task, items in zip(("pay much", "pay much"), said.values(), strict=True):
        assert [(item.role, item.text) for item in items[:1]] == [("user", task)]
        assert [item.role for item in items] == ["user", "assistant"]
    assert [[call.tool for call in items[1].calls] for items in said.values()] == [
        ["clerk"],
        ["balance", "transfer"],
    ]
    assert await refused(run.transcript("graph:teams;node:nobody;agent:x")) == Code.UNKNOWN_NODE

"""Operating a run with Temporal's own tools: the `temporal` command sends what the UI's buttons send.

docs/how-to/operating.md has every command of these tests, with what an operator sees.
"""

from __future__ import annotations

import json
from datetime import datetime

from sample_graphs import Held, chain, gated
from temporal_cli import Operator
from temporal_site import Site, eventually
from temporalio.api.common.v1 import Payload
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import RawValue


async def test_a_run_is_paused_messaged_and_answered_from_temporals_ui(
    temporal: TemporalClient,
) -> None:
    site, operator = Site(temporal, gated()), Operator(temporal)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        paused = await operator.workflow("signal", run_id, "--name", "pause")
        shown = await operator.query(run_id, "state")
        resumed = await operator.workflow("signal", run_id, "--name", "resume")
        after = await operator.query(run_id, "state")
        assert (paused.code, resumed.code) == (0, 0)
        assert (shown["status"], shown["pause"]["actor"]) == ("paused", "temporal")
        assert (after["status"], after["pause"]) == ("awaiting-input", None)

        # A signal may carry who sends it, and why.
        why = json.dumps({"actor": "ada", "reason": "the bank is closed", "timeout": "PT8H"})
        await operator.workflow("signal", run_id, "--name", "pause", "--input", why)
        said = await operator.workflow("metadata", run_id)
        await operator.workflow("signal", run_id, "--name", "resume")
        assert "**paused** by `ada` since" in said.out
        assert "`the bank is closed`; until" in said.out

        message = json.dumps({"message_id": "m1", "text": "mind the VAT"})
        for _ in range(2):
            await operator.workflow("signal", run_id, "--name", "steer", "--input", message)
        (unread,) = await site.client.run(run_id).messages()
        assert (unread.text, unread.sender) == ("mind the VAT", "temporal")

        shown = await operator.query(run_id, "state")
        (asked,) = shown["interrupts"]
        assert shown["queue_depth"] == 1
        ill_typed = await operator.respond(run_id, response={"approved": "perhaps"})
        misspelt = await operator.respond(run_id, answer=True)
        assert "(type: invalid_answer" in ill_typed.errors
        assert "perhaps" in ill_typed.errors
        assert "answer\n  Extra inputs are not permitted" in misspelt.errors

        said = await operator.respond(run_id, interrupt_id=asked["id"], response={"approved": True})
        ended = await site.ended(run_id)
        (settled,) = await site.client.run(run_id).interrupts(status="all")
        (receipt,) = said.json["result"]["receipts"]
        assert (receipt["status"], receipt["answered_by"]) == ("answered", "temporal")
        assert ended.values["log"] == ["before", "after {'approved': True}"]
        assert (settled.status, settled.answered_by) == ("answered", "temporal")
        await site.replays(run_id)


async def test_an_unreadable_signal_is_recorded_and_the_run_goes_on(
    temporal: TemporalClient,
) -> None:
    site, operator = Site(temporal, gated()), Operator(temporal)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        sent = await operator.workflow("signal", run_id, "--name", "pause", "--input", '{"a": 1}')
        goto = '{"timeout": "1h", "on_timeout": "goto:nowhere"}'
        await operator.workflow("signal", run_id, "--name", "pause", "--input", goto)
        handle = site.temporal.get_workflow_handle(run_id)
        words = Payload(metadata={"encoding": b"json/plain"}, data=b"stop it")
        for name in ("cancel", "resume", "steer"):
            await handle.signal(name, RawValue(words))
        bytes_ = Payload(metadata={"encoding": b"binary/plain"}, data=b"stop it")
        await handle.signal("pause", RawValue(bytes_))
        strange = Payload(metadata={"encoding": b"morse"}, data=b"...---...")
        await handle.signal("pause", RawValue(strange))
        shown = await operator.query(run_id, "state")
        answered = await operator.respond(run_id, response={"approved": False})
        ended = await site.ended(run_id)
        told = [event async for event in await site.client.feed.opened(run_id, None)]
        refused = [event.data for event in told if event.type == "signal.refused"]

        assert (sent.code, answered.code, ended.status) == (0, 0, "completed")
        assert (shown["status"], shown["paused"]) == ("awaiting-input", False)
        assert [(each["signal"], each["code"]) for each in refused] == [
            ("pause", "invalid_body"),
            ("pause", "unknown_node"),
            ("cancel", "invalid_body"),
            ("resume", "invalid_body"),
            ("pause", "invalid_body"),
            ("pause", "invalid_body"),
        ]
        assert (
            "/a: Extra inputs are not permitted. Its argument is '{\"a\": 1}'"
            in refused[0]["reason"]
        )
        assert "Its argument is 'stop it'; send JSON, or nothing" in refused[2]["reason"]
        assert [entry["code"] for entry in shown["rejected"]] == ["invalid_message"]
        await site.replays(run_id)


async def test_a_question_that_asks_for_a_capability_is_refused_and_stays_open(
    temporal: TemporalClient,
) -> None:
    site, operator = Site(temporal, gated(capability="pay:approve")), Operator(temporal)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        before = len((await site.history(run_id)).events)
        refused = await operator.respond(run_id, response={"approved": True})
        after = len((await site.history(run_id)).events)
        view = await site.until(run_id, "awaiting-input")
        await site.answer(run_id, {"approved": True})
        ended = await site.ended(run_id)

        assert refused.code == 1
        assert "'temporal' may not answer 'approve': it asks for the capability" in refused.errors
        assert "(type: capability_required" in refused.errors
        # The text is there once: the cause of the error would repeat it.
        assert refused.errors.count("may not answer") == 1
        assert (len(view.interrupts), after, ended.status) == (1, before, "completed")


async def test_a_deadline_is_moved_and_values_are_set_from_there(temporal: TemporalClient) -> None:
    site, operator = Site(temporal, gated(timeout="PT1H")), Operator(temporal)
    async with site.worker():
        run_id = await site.start({"amount": 3})
        before = await site.until(run_id, "awaiting-input")
        (asked,) = before.interrupts
        moved = await operator.update(
            run_id, "edit_deadline", interrupt_id=asked.id, timeout="PT48H"
        )
        patch = {"patch": {"amount": 4}, "version": before.version}
        mended = await operator.update(run_id, "edit_values", **patch)
        stale = await operator.update(run_id, "edit_values", **patch)
        after = await operator.query(run_id, "state")

        assert (moved.code, mended.code) == (0, 0), moved
        assert "(type: stale" in stale.errors
        assert after["values"]["amount"] == 4
        assert asked.deadline is not None
        assert datetime.fromisoformat(after["interrupts"][0]["deadline"]) > asked.deadline


async def test_a_visit_may_be_paused_and_is_not_blamed(temporal: TemporalClient) -> None:
    held = Held(retries=0)
    site, operator = Site(temporal, held.graph), Operator(temporal)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started == 1)
        described = await operator.workflow("describe", run_id, "--output", "json")
        (pending,) = described.json["pendingActivities"]
        visit = ("--workflow-id", run_id, "--activity-id", pending["activityId"])
        paused = await operator.run("activity", "pause", *visit)
        await eventually(lambda: held.stopped == 1)
        unpaused = await operator.run("activity", "unpause", *visit)
        await eventually(lambda: held.started == 2)
        held.release.set()
        ended = await site.ended(run_id)

        assert (paused.code, unpaused.code) == (0, 0), unpaused
        assert (ended.status, ended.values["log"]) == ("completed", ["held", "cleanup completed"])


async def test_cancel_ends_a_run_in_good_order(temporal: TemporalClient) -> None:
    site, operator = Site(temporal, gated()), Operator(temporal)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        why = json.dumps({"actor": "ada", "reason": "ordered twice"})
        await operator.workflow("signal", run_id, "--name", "cancel", "--input", why)
        ended = await site.ended(run_id)
        described = await temporal.get_workflow_handle(run_id).describe()
        late = await operator.workflow("signal", run_id, "--name", "resume")

        assert (ended.status, ended.reason, ended.cancelled_by) == (
            "cancelled",
            "ordered twice",
            "ada",
        )
        # To Temporal this workflow has completed, with a result.
        assert described.status is WorkflowExecutionStatus.COMPLETED
        assert described.search_attributes["AbeyanceStatus"] == ["cancelled"]
        assert late.code == 1
        assert "already completed" in late.errors


async def test_a_node_without_code_is_a_pending_activity_that_says_so(
    temporal: TemporalClient,
) -> None:
    old, new = chain(3, "moved"), chain(1, "moved")
    site, operator = Site(temporal, old), Operator(temporal)
    async with site.worker(new):
        run_id = await site.start()

        async def is_blocked() -> bool:
            said = await operator.workflow("describe", run_id, "--output", "json")
            pending = said.json.get("pendingActivities") or [{}]
            failure = pending[0].get("lastFailure") or {}
            told = failure.get("applicationFailureInfo", {}).get("type")
            return bool(told == "code_missing" and "n1" in failure["message"])

        await eventually(is_blocked)
    # Reset it before a worker is up, to which it might go by itself at this moment.
    described = await operator.workflow("describe", run_id, "--output", "json")
    (pending,) = described.json["pendingActivities"]
    visit = ("--workflow-id", run_id, "--activity-id", pending["activityId"])
    at_once = await operator.run("activity", "reset", *visit)
    async with site.worker():
        ended = await site.ended(run_id)

        assert at_once.code == 0, at_once
        assert ended.values["log"] == ["n0", "n1", "n2"]

"""Agents on a real server: what Temporal, the feed and people see of their turns and calls."""

from __future__ import annotations

from scripted_agents import Script, desk, told
from temporal_site import ANYBODY, Site, begun
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient

from abeyance import Agent, tool

CLERK = "graph:desk;node:clerk;agent:clerk"


async def scheduled(site: Site, run_id: str) -> list[tuple[str, str]]:
    """Return the name and the summary of each activity so far."""
    converter = site.temporal.data_converter
    found = []
    for event in (await site.history(run_id)).events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            (summary,) = await converter.decode([event.user_metadata.summary])
            name = event.activity_task_scheduled_event_attributes.activity_type.name
            found.append((name, summary))
    return found


class Bank:
    """A tool that moves money, and what was moved."""

    def __init__(self) -> None:
        self.moved: list[tuple[float, str]] = []
        moved = self.moved

        @tool(approve=lambda args: args["amount"] > 1000)
        async def transfer(amount: float, to: str) -> str:
            """Move money."""
            moved.append((amount, to))
            return f"moved {amount:g} to {to}"

        self.transfer = transfer


async def test_turns_and_calls_are_activities_and_events_that_never_tell_what_was_said(
    temporal: TemporalClient,
) -> None:
    bank = Bank()
    clerk = Agent(
        "clerk",
        model=Script([("transfer", {"amount": 5, "to": "a secret"})], "It is done."),
        tools=[bank.transfer],
    )
    async with begun(temporal, desk(clerk)) as (site, run):
        await site.ended(run.run_id)
        activities = await scheduled(site, run.run_id)
        await site.replays(run.run_id)
    events = await site.published(run.run_id)

    assert activities == [
        ("desk.clerk.model", f"{CLERK};node:model"),
        ("desk.clerk.transfer", f"{CLERK};tool:transfer:1.1"),
        ("desk.clerk.model", f"{CLERK};node:model:2"),
    ]
    assert [
        event.type + (f" {event.address.split(';')[-1]}" if event.address else "")
        for event in events
    ] == [
        "run.started",
        "node.started node:model",
        "node.finished node:model",
        "model.turn node:model",
        "tool.started tool:transfer:1.1",
        "tool.finished tool:transfer:1.1",
        "node.started node:model:2",
        "node.finished node:model:2",
        "model.turn node:model:2",
        "run.completed",
    ]
    turns = [event.data for event in events if event.type == "model.turn"]
    assert [(turn["turn"], turn["calls"]) for turn in turns] == [(1, ["transfer"]), (2, [])]
    assert all(turn["usage"]["output_tokens"] > 0 for turn in turns)
    told = "".join(event.model_dump_json() for event in events)
    assert "a secret" not in told
    assert "It is done" not in told


async def test_a_gated_call_is_scheduled_only_after_its_approval(
    temporal: TemporalClient,
) -> None:
    bank = Bank()
    clerk = Agent(
        "clerk",
        model=Script([("transfer", {"amount": 5000, "to": "bob"})], told),
        tools=[bank.transfer],
    )
    async with begun(temporal, desk(clerk)) as (site, run):
        view = await site.until(run.run_id, "awaiting-input")
        before = await scheduled(site, run.run_id)
        (asked,) = view.interrupts
        edited = {"approved": True, "arguments": {"amount": 4000, "to": "bob"}}
        await run.respond({asked.id: edited}, principal=ANYBODY)
        ended = await site.ended(run.run_id)
        after = await scheduled(site, run.run_id)
        await site.replays(run.run_id)

    assert [name for name, _ in before] == ["desk.clerk.model"]
    assert (asked.kind, asked.address) == ("approval", f"{CLERK};tool:transfer:1.1")
    assert asked.reason == {"tool": "transfer", "arguments": {"amount": 5000.0, "to": "bob"}}
    names = ["desk.clerk.model", "desk.clerk.transfer", "desk.clerk.model"]
    assert [name for name, _ in after] == names
    assert bank.moved == [(4000, "bob")]
    assert ended.values["report"] == "transfer: success: moved 4000 to bob"

"""Where all has to be sealed: who may write to the namespace and has no key changes nothing by that.

What holds with encryption alone is tested in tests/storage: nothing of values in histories and files
(`test_runs.py`), unknown keys and damage (`test_keyring.py`), ids and links that lead out of the storage
(`test_blobs.py`), the codec (`test_codec.py`).
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
import pytest_asyncio
from intruder import Intruder
from pydantic import BaseModel
from stack import served
from stored import LARGE, connected
from temporal_site import ANYBODY, Site, eventually
from temporalio.api.common.v1 import Payload
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowFailureError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from abeyance import START, Context, Fatal, Graph, Principal, append, views, wire
from abeyance.api.app import create_app
from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal, SettingsError
from abeyance.history.feed import Feed
from abeyance.keyring import NotSealed
from abeyance.settings import Settings, load_settings
from abeyance.storage.blobs import MemoryBlobs
from abeyance.storage.converter import of_run
from abeyance.storage.encryption import EncryptedBlobs
from abeyance.temporal.schedules import schedule_id, schedule_janitor
from abeyance.util import conversation_workflow_id
from abeyance.workflows.run import AgentRun

FORGED = {"subject": "ceo", "capabilities": ["*"]}


class State(BaseModel):
    amount: int = 0
    text: str = ""
    log: Annotated[list[str], append] = []


def paying(name: str = "paying") -> Graph:
    """check asks, confirm asks, and then it is paid."""
    graph = Graph(name, state=State)

    async def asks(state: State, ctx: Context) -> dict[str, Any]:
        answer = await ctx.interrupt(
            "sure", prompt=f"{ctx.node}: pay {state.amount}?", requested_capability="pay"
        )
        return {"log": [f"{ctx.node} {answer}"]}

    @graph.node
    async def pay(state: State) -> dict[str, Any]:
        return {"log": [f"PAID {state.amount}"]}

    for step in ("check", "confirm"):
        graph.node(name=step, asks="pay")(asks)
    for source, target in ((START, "check"), ("check", "confirm"), ("confirm", "pay")):
        graph.edge(source, target)
    return graph


def a_key(name: str = "k1") -> str:
    return f"{name}:{base64.b64encode(os.urandom(32)).decode()}"


@pytest.fixture
def sealed() -> Settings:
    return Settings(encryption_keys=a_key(), encryption_required=True)


@pytest_asyncio.fixture
async def site(temporal: TemporalClient, sealed: Settings) -> AsyncIterator[Site]:
    site = Site(connected(temporal, sealed), paying())
    async with site.worker():
        yield site


@pytest.fixture
def intruder(temporal: TemporalClient, site: Site) -> Intruder:
    return Intruder(temporal, site)


async def asking(site: Site, **given: Any) -> tuple[str, views.InterruptView]:
    """A run that waits for its first answer, and the question."""
    run_id = await site.start({"amount": 101}, **given)
    return run_id, await question(site, run_id, "check")


async def question(site: Site, run_id: str, node: str) -> views.InterruptView:
    async def opened() -> views.InterruptView | None:
        found = await site.client.run(run_id).interrupts()
        return next((each for each in found if each.prompt.startswith(node)), None)

    found: views.InterruptView = await eventually(opened)
    return found


async def told(site: Site, run_id: str, type_: str) -> list[views.Event]:
    events = (await Feed(site.temporal, site.settings.task_queue).page(run_id, None, 1_000))[0]
    return [event for event in events if event.type == type_]


async def stays(site: Site, run_id: str) -> None:
    """The run waits as before, and what happened can be replayed."""
    view = await site.client.run(run_id).view()
    assert (view.status, view.values["log"]) == ("awaiting-input", [])
    await replays(site, run_id)


async def replays(site: Site, run_id: str) -> None:
    replayer = Replayer(
        workflows=[AgentRun],
        workflow_runner=UnsandboxedWorkflowRunner(),
        data_converter=site.temporal.data_converter,
    )
    await replayer.replay_workflow(await site.history(run_id))


async def paid(site: Site, run_id: str) -> list[str]:
    """How a run ends in which all questions are answered by somebody who may."""
    for node in ("check", "confirm"):
        asked = await question(site, run_id, node)
        await site.client.run(run_id).respond({asked.id: "yes"}, principal=ANYBODY)
    log: list[str] = (await site.ended(run_id)).values["log"]
    return log


async def test_a_plain_answer_of_a_forged_principal_is_refused_and_leaves_nothing(
    site: Site, intruder: Intruder
) -> None:
    run_id, asked = await asking(site)
    before = len(await intruder.events(run_id))
    for order in (
        {"response": "yes", "principal": FORGED},
        {"interrupt_id": asked.id, "response": "yes", "principal": FORGED},
    ):
        error = await intruder.update(run_id, "respond", order)

        assert error is not None
        assert error.type == Code.NOT_SEALED
        assert "it is not encrypted" in error.message
    accepted = await intruder.updates(run_id, "respond")
    assert (accepted, len(await intruder.events(run_id)) - before) == ([], 0)
    await stays(site, run_id)
    assert await paid(site, run_id) == ["check yes", "confirm yes", "PAID 101"]


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("send_message", {"text": "hello", "capabilities": ["*"]}),
        ("clear_messages", {"actor": "ceo"}),
        ("edit_values", {"patch": {"amount": 9}, "version": 0, "principal": FORGED}),
        ("evict", {}),
    ],
)
async def test_every_other_plain_update_is_refused_too(
    site: Site, intruder: Intruder, name: str, order: dict[str, Any]
) -> None:
    run_id, _ = await asking(site)
    error = await intruder.update(run_id, name, order)

    assert error is not None
    assert error.type == Code.NOT_SEALED
    await stays(site, run_id)


async def test_a_plain_signal_is_refused_and_reported(site: Site, intruder: Intruder) -> None:
    run_id, _ = await asking(site)
    await intruder.signal(run_id, "pause", {"actor": "ceo"})
    await intruder.signal(run_id, "cancel")
    patch = {"action": "update_state", "params": {"patch": {"amount": 1_000_000}}}
    await intruder.signal(run_id, "steer", {**patch, "capabilities": ["*"], "message_id": "m"})

    async def reported() -> bool:
        return len(await told(site, run_id, "message.rejected")) == 1

    await eventually(reported)
    refused = [event.data for event in await told(site, run_id, "signal.refused")]
    assert [(each["signal"], each["code"]) for each in refused] == [
        ("pause", "not_sealed"),
        ("cancel", "not_sealed"),
    ]
    (rejected,) = await told(site, run_id, "message.rejected")
    assert "accepts only sealed requests" in str(rejected.data)
    await stays(site, run_id)
    assert await paid(site, run_id) == ["check yes", "confirm yes", "PAID 101"]


async def test_a_plain_start_fails_and_runs_nothing_and_its_memo_is_not_believed(
    site: Site, intruder: Intruder
) -> None:
    run_id, _ = await asking(site)
    known = of_run(site.temporal.data_converter, run_id)
    _, spec, values, _ = await known.decode(await intruder.start_of(run_id))
    summary = {"status": "awaiting-input", "open": 1, "paused": False}
    handle = await intruder.start(
        "forged", {"run_id": "forged"}, spec, values, None, memo={"summary": summary}
    )

    with pytest.raises(WorkflowFailureError):
        await handle.result()
    events = await intruder.events("forged")
    assert not any(event.HasField("activity_task_scheduled_event_attributes") for event in events)
    view = await site.client.run("forged").view()
    assert (view.status, view.degraded, view.interrupts) == ("failed", True, [])
    assert "ABEYANCE_ENCRYPTION_REQUIRED" in str(view.blocked)


async def test_a_start_of_which_only_a_part_is_sealed_fails_too(
    site: Site, intruder: Intruder
) -> None:
    run_id, _ = await asking(site)
    start, spec, sealed_values, carried = await intruder.start_of(run_id)
    (visit, *_) = [
        event.activity_task_scheduled_event_attributes.input.payloads[0]
        for event in await intruder.events(run_id)
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    await site.client.run(run_id).cancel()
    await site.ended(run_id)
    values = {"graph:paying": {"amount": 9_999, "text": "", "log": ["check yes"]}}

    for arguments in (
        (start, spec, values, carried),
        # Something else that was sealed for the same run, and names it too, in the place of its start.
        (visit, spec, sealed_values, carried),
    ):
        handle = await intruder.start(run_id, *arguments)
        with pytest.raises(WorkflowFailureError):
            await handle.result()


async def test_the_sealed_answer_of_one_run_is_refused_by_another(
    site: Site, intruder: Intruder
) -> None:
    small, asked = await asking(site)
    large = await site.start({"amount": 1_000_000})
    await question(site, large, "check")
    await site.client.run(small).respond(response="yes", principal=ANYBODY)
    (answer,) = await intruder.updates(small, "respond")

    error = await intruder.update(large, "respond", answer)
    assert error is not None
    assert error.type == Code.NOT_SEALED
    assert f"it was sealed for {small!r}" in error.message
    await intruder.signal(large, "steer", answer)
    await intruder.signal(large, "cancel", answer)

    async def reported() -> bool:
        return bool(await told(site, large, "signal.refused"))

    await eventually(reported)
    assert len(await told(site, large, "message.rejected")) == 1
    await stays(site, large)
    assert asked.id.startswith(small)


async def test_an_answer_without_an_id_is_not_taken_again_for_a_later_question(
    site: Site, intruder: Intruder
) -> None:
    run_id, _ = await asking(site)
    await site.client.run(run_id).respond(response="yes", principal=ANYBODY)
    await question(site, run_id, "confirm")
    (answer,) = await intruder.updates(run_id, "respond")

    error = await intruder.update(run_id, "respond", answer)
    assert error is not None
    assert error.type == Code.STALE
    view = await site.client.run(run_id).view()
    assert (view.status, view.values["log"]) == ("awaiting-input", ["check yes"])


async def test_an_answer_that_was_held_back_answers_no_other_question(
    site: Site, intruder: Intruder
) -> None:
    """As a process does it that takes the work of a worker from the queue, and hands it on later."""
    run_id, _ = await asking(site)
    order = wire.Respond(response="yes", principal=ANYBODY)
    line = site.client._deployment.line
    bound = await site.client.run(run_id)._bound(order)
    late = line._stamped("respond", bound, await line.admit(run_id))
    (held_back,) = await of_run(site.temporal.data_converter, run_id).encode([late])
    await site.client.run(run_id).respond(response="no", principal=ANYBODY)
    await question(site, run_id, "confirm")

    error = await intruder.update(run_id, "respond", held_back)
    assert error is not None
    assert error.type == Code.STALE
    assert (await site.client.run(run_id).view()).values["log"] == ["check no"]


async def test_a_resume_that_is_sent_again_does_nothing_also_after_a_hand_over(
    site: Site, intruder: Intruder
) -> None:
    run_id, _ = await asking(site, limits=Limits(continue_as_new_after=40))
    await site.pause_and_resume(run_id)
    (resume,) = await intruder.signals(run_id, "resume")
    first = (await intruder.events(run_id))[0]
    for _ in range(6):
        await site.pause_and_resume(run_id)
    await site.client.run(run_id).control(wire.Pause(actor="ada", reason="the bank is closed"))
    await site.until(run_id, "paused")
    assert (await intruder.events(run_id))[0] != first, "it was handed over"

    await intruder.signal(run_id, "resume", resume)

    async def reported() -> list[views.Event]:
        return await told(site, run_id, "signal.refused")

    (refused,) = await eventually(reported)
    assert (refused.data["signal"], refused.data["code"]) == ("resume", "not_sealed")
    assert (await site.client.run(run_id).view()).status == "paused"
    await replays(site, run_id)


async def test_a_sealed_order_is_not_taken_for_another_one(site: Site, intruder: Intruder) -> None:
    run_id, _ = await asking(site)
    await site.client.run(run_id).clear_messages(principal=Principal(subject="ada"))
    await site.client.run(run_id).control(wire.Pause(actor="ada"))
    (cleared,) = await intruder.updates(run_id, "clear_messages")

    # It says no more than who sends it, as a resume does.
    await intruder.signal(run_id, "resume", cleared)

    async def reported() -> list[views.Event]:
        return await told(site, run_id, "signal.refused")

    await eventually(reported)
    assert (await site.client.run(run_id).view()).status == "paused"


async def test_a_run_that_is_started_again_by_a_copy_asks_again_and_takes_no_old_answer(
    site: Site, intruder: Intruder
) -> None:
    run_id, asked = await asking(site)
    await site.client.run(run_id).respond({asked.id: "yes"}, principal=ANYBODY)
    (answer,) = await intruder.updates(run_id, "respond")
    start = await intruder.start_of(run_id)
    await site.client.run(run_id).cancel()
    await site.ended(run_id)
    await intruder.start(run_id, *start)
    again = await question(site, run_id, "check")
    assert (again.id, again.digest) == (asked.id, asked.digest)

    error = await intruder.update(run_id, "respond", answer)
    assert error is not None
    assert error.type == Code.NOT_SEALED
    assert "for the execution" in error.message
    await stays(site, run_id)


async def test_a_repeat_by_its_sender_has_the_effect_of_one(site: Site) -> None:
    run_id, asked = await asking(site)
    first = await site.client.run(run_id).respond(response="yes", principal=ANYBODY, key="k")
    again = await site.client.run(run_id).respond(response="yes", principal=ANYBODY, key="k")
    by_id = await site.client.run(run_id).respond({asked.id: "yes"}, principal=ANYBODY)

    assert [replace(receipt, replayed=True) for receipt in first] == again == by_id
    message = wire.SteerMessage(message_id="m", text="hello")
    receipts = [await site.client.run(run_id).send_message(message) for _ in range(2)]
    assert [receipt.duplicate for receipt in receipts] == [False, True]


async def test_whoever_has_the_keys_and_not_the_setting_is_told_so_by_the_run(
    temporal: TemporalClient, site: Site, sealed: Settings
) -> None:
    run_id, _ = await asking(site)
    lax = sealed.model_copy(update={"encryption_required": False})
    other = Site(connected(temporal, lax), paying(), beside=site)

    with pytest.raises(Refusal, match="ABEYANCE_ENCRYPTION_REQUIRED") as caught:
        await other.client.run(run_id).respond(response="yes", principal=ANYBODY)
    assert caught.value.code is Code.NOT_SEALED
    await stays(site, run_id)


async def test_a_run_from_before_the_setting_stands_still_under_it_and_is_not_lost(
    temporal: TemporalClient, sealed: Settings
) -> None:
    lax = sealed.model_copy(update={"encryption_required": False})
    before = Site(connected(temporal, lax), paying())
    strict = Site(connected(temporal, sealed), paying())
    strict.settings = before.settings
    async with before.worker():
        run_id, _ = await asking(before)
    async with strict.worker():
        await before.client._deployment.line.signal(run_id, "pause", wire.Pause())

        async def failed() -> list[str]:
            return [
                event.workflow_task_failed_event_attributes.failure.message
                for event in (await before.history(run_id)).events
                if event.HasField("workflow_task_failed_event_attributes")
            ]

        await eventually(failed)
    async with before.worker():
        await before.client.run(run_id).resume()
        assert await paid(before, run_id) == ["check yes", "confirm yes", "PAID 101"]
        await replays(before, run_id)


async def test_where_it_is_not_required_what_is_plain_is_taken_and_what_is_of_another_run_is_not(
    temporal: TemporalClient,
) -> None:
    site = Site(connected(temporal, Settings(encryption_keys=a_key())), paying())
    intruder = Intruder(temporal, site)
    async with site.worker():
        run_id, _ = await asking(site)
        other, _ = await asking(site)
        await site.client.run(other).respond(response="yes", principal=ANYBODY)
        (answer,) = await intruder.updates(other, "respond")
        error = await intruder.update(run_id, "respond", answer)
        assert error is not None
        assert error.type == Code.NOT_SEALED

        plain = {"response": "yes", "principal": {"subject": "ada", "capabilities": ["pay"]}}
        assert await intruder.update(run_id, "respond", plain) is None
        await question(site, run_id, "confirm")
        await intruder.signal(run_id, "pause")
        await site.until(run_id, "paused")
        await intruder.signal(run_id, "resume")
        await site.until(run_id, "awaiting-input")
        await replays(site, run_id)


async def test_a_reference_leads_to_a_blob_only_if_it_is_sealed_and_of_the_run(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    settings = Settings(
        encryption_keys=a_key(), encryption_required=True, storage=str(tmp_path), max_payload=1_024
    )
    site = Site(connected(temporal, settings), paying())
    intruder = Intruder(temporal, site)
    async with site.worker():
        given = {"amount": 101, "text": LARGE[:5_000]}
        small, large = [await site.start(given) for _ in range(2)]
        for run_id in (small, large):
            await question(site, run_id, "check")
        await site.client.run(small).respond(response=LARGE[:5_000], principal=ANYBODY)
        (answer,) = await intruder.updates(small, "respond")
        assert b'"sealed"' in answer.data, "it is a reference"
        assert str(next(tmp_path.iterdir()).name).encode() not in answer.data
        error = await intruder.update(large, "respond", answer)
        assert error is not None
        assert error.type == Code.NOT_SEALED

        # A blob of this very run, by a reference in the clear.
        (blob, *_) = [
            path for path in tmp_path.rglob("*") if large[:12] in str(path) and path.is_file()
        ]
        claim = f'{{"driverName": "abeyance", "claimData": {{"ref": "{blob.parent.name}/{blob.name}"}}}}'
        plain = Payload(metadata=dict(answer.metadata), data=claim.encode())
        for forged in (
            plain,
            Payload(
                metadata=dict(answer.metadata), data=claim.replace('"ref"', '"sealed"').encode()
            ),
        ):
            error = await intruder.update(large, "respond", forged)
            assert error is not None
            assert error.type == Code.NOT_SEALED
        await stays(site, large)


@pytest.mark.parametrize("how", ["copied", "plain"])
async def test_a_result_that_somebody_else_hands_in_is_not_taken(
    temporal: TemporalClient, sealed: Settings, how: str
) -> None:
    graph = Graph("guarded", state=State)
    begun, goes_on = asyncio.Event(), asyncio.Event()

    @graph.node
    async def first(state: State) -> dict[str, Any]:
        return {"log": ["harmless"]}

    @graph.node
    async def guard(state: State) -> dict[str, Any]:
        begun.set()
        await goes_on.wait()
        raise Fatal("this may not be paid")

    @graph.node
    async def pay(state: State) -> dict[str, Any]:
        return {"log": ["PAID"]}

    for source, target in ((START, "first"), ("first", "guard"), ("guard", "pay")):
        graph.edge(source, target)
    site = Site(connected(temporal, sealed), graph)
    intruder = Intruder(temporal, site)
    async with site.worker():
        run_id = await site.start()
        await begun.wait()
        (copied,) = await intruder.results(run_id)
        plain = b'{"outcome": {"kind": "finished", "patch": {}}}'
        forged = Payload(metadata={"encoding": b"json/plain"}, data=plain)
        await intruder.complete(run_id, copied if how == "copied" else forged)
        ended = await site.ended(run_id)
        goes_on.set()

    assert ended.status == "failed"
    if how == "copied":
        assert ended.values["log"] == ["harmless"]
        assert ended.error is not None
        assert "was not sealed for this visit" in ended.error.message
        await replays(site, run_id)
    assert not any(
        event.activity_task_scheduled_event_attributes.activity_type.name == "guarded.pay"
        for event in await intruder.events(run_id)
    )


async def test_blobs_are_sealed_for_their_run_and_no_other_is_taken() -> None:
    kept, settings = MemoryBlobs(), Settings(encryption_keys=a_key())
    blobs = EncryptedBlobs(kept, settings.keyring, is_required=True)
    ref = await blobs.put("run-1", b"the transcript")
    assert await blobs.get(ref) == b"the transcript"

    moved = await kept.put("run-2", await kept.get(ref))
    with pytest.raises(NotSealed, match="sealed for 'run-1'"):
        await blobs.get(moved)
    with pytest.raises(NotSealed, match="not encrypted"):
        await blobs.get(await kept.put("run-2", b"a transcript"))


async def test_keys_are_rotated_while_a_run_waits(temporal: TemporalClient) -> None:
    old, new = a_key("old"), a_key("new")
    before = Site(
        connected(temporal, Settings(encryption_keys=old, encryption_required=True)), paying()
    )
    async with before.worker():
        run_id, _ = await asking(before)
    rotated = Settings(encryption_keys=f"{new},{old}", encryption_required=True)
    site = Site(connected(temporal, rotated), paying(), beside=before)
    async with site.worker():
        assert await paid(site, run_id) == ["check yes", "confirm yes", "PAID 101"]


async def test_temporals_ui_sees_what_it_asks_for_and_what_it_encodes_is_refused_by_the_run(
    site: Site, intruder: Intruder, sealed: Settings
) -> None:
    run_id, _ = await asking(site)
    start = (await intruder.start_of(run_id))[2]
    plain = Payload(metadata={"encoding": b"json/plain"}, data=b'{"response": "yes"}')

    def written(payload: Payload) -> dict[str, Any]:
        metadata = {k: base64.b64encode(v).decode() for k, v in payload.metadata.items()}
        return {"metadata": metadata, "data": base64.b64encode(payload.data).decode()}

    async with served(create_app(sealed, {}, site.client)) as api:
        shown = await api.http.post(
            "/codec/decode", json={"payloads": [written(start), written(plain)]}
        )
        encoded = await api.http.post("/codec/encode", json={"payloads": [written(plain)]})
    values = [base64.b64decode(each["data"]) for each in shown.json()["payloads"]]
    assert b'"amount":101' in values[0]
    assert values[1] == b'{"response": "yes"}'
    (found,) = encoded.json()["payloads"]
    metadata = {k: base64.b64decode(v) for k, v in found["metadata"].items()}
    forged = Payload(metadata=metadata, data=base64.b64decode(found["data"]))
    error = await intruder.update(run_id, "respond", forged)
    assert error is not None
    assert error.type == Code.NOT_SEALED
    assert "sealed for no run" in error.message


async def test_the_janitor_still_makes_its_rounds(temporal: TemporalClient, site: Site) -> None:
    run_id, _ = await asking(site)
    queue = site.settings.task_queue
    assert await schedule_janitor(site.temporal, queue, 1.0)
    handle = temporal.get_schedule_handle(schedule_id(queue))

    async def evicted() -> bool:
        await handle.trigger()
        return (await site.client.run(run_id).view()).outcome == "halted"

    try:
        await eventually(evicted)
    finally:
        await handle.delete()


async def test_conversations_go_on_and_take_nothing_that_is_plain(
    site: Site, intruder: Intruder
) -> None:
    run_id, _ = await asking(site, conversation_id="talk")
    assert await site.client.conversations.runs("talk") == [run_id]
    error = await intruder.update(
        conversation_workflow_id(site.settings.task_queue, "talk"),
        "claim",
        {"run_id": "x", "session_type": "agent", "token": "t", "allow_concurrent": True},
    )
    assert error is not None
    assert error.type == Code.NOT_SEALED
    assert await paid(site, run_id) == ["check yes", "confirm yes", "PAID 101"]


async def test_the_setting_without_a_key_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABEYANCE_ENCRYPTION_REQUIRED", "true")
    with pytest.raises(SettingsError, match="set ABEYANCE_ENCRYPTION_KEYS to id:key"):
        load_settings()
    monkeypatch.setenv("ABEYANCE_ENCRYPTION_KEYS", a_key())
    assert load_settings().encryption_required

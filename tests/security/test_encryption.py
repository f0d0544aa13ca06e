"""Required encryption: an intruder who may write to the namespace but has no key changes nothing.

tests/storage has the tests of optional encryption: no values in histories and files (`test_runs.py`),
unknown keys and damage (`test_keyring.py`), ids and links that lead out of the storage
(`test_blobs.py`), the codec (`test_codec.py`).
"""

from __future__ import annotations

import base64
from typing import Any

import pytest
from intruder import Intruder
from sealed_site import a_key, asking, paid, paying, question, replays, stays
from stack import served
from stored import connected
from temporal_site import ANYBODY, Site, eventually
from temporalio.api.common.v1 import Payload
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowFailureError

from abeyance import commands
from abeyance.api.app import create_app
from abeyance.errors import Code, Refusal
from abeyance.settings import Settings
from abeyance.storage.converter import of_run

FORGED = {"subject": "ceo", "capabilities": ["*"]}


async def test_a_plain_answer_of_a_forged_principal_is_refused_and_leaves_nothing(
    site: Site, intruder: Intruder
) -> None:
    run_id, asked = await asking(site)
    before = len(await intruder.events(run_id))
    for order in (
        {"response": "yes", "principal": FORGED},
        {"interrupt_id": asked.id, "response": "yes", "principal": FORGED},
    ):
        assert "it is not encrypted" in await intruder.refused(run_id, order)
    accepted = await intruder.updates(run_id, "respond")
    assert (accepted, len(await intruder.events(run_id)) - before) == ([], 0)
    await stays(site, run_id)
    assert await paid(site, run_id) == ["check yes", "confirm yes", "PAID 101"]


async def test_every_other_plain_update_is_refused_too(site: Site, intruder: Intruder) -> None:
    run_id, _ = await asking(site)
    updates: dict[str, dict[str, Any]] = {
        "send_message": {"text": "hello", "capabilities": ["*"]},
        "clear_messages": {"actor": "ceo"},
        "edit_values": {"patch": {"amount": 9}, "version": 0, "principal": FORGED},
        "evict": {},
    }
    for name, order in updates.items():
        await intruder.refused(run_id, order, name=name)
    await stays(site, run_id)


async def test_a_plain_signal_is_refused_and_reported(site: Site, intruder: Intruder) -> None:
    run_id, _ = await asking(site)
    await intruder.signal(run_id, "pause", {"actor": "ceo"})
    await intruder.signal(run_id, "cancel")
    await intruder.signal(run_id, "steer", {"text": "x", "capabilities": ["*"], "message_id": "m"})

    async def reported() -> bool:
        return len(await site.published(run_id, "message.rejected")) == 1

    await eventually(reported)
    refused = [event.data for event in await site.published(run_id, "signal.refused")]
    assert [(each["signal"], each["code"]) for each in refused] == [
        ("pause", "not_sealed"),
        ("cancel", "not_sealed"),
    ]
    (rejected,) = await site.published(run_id, "message.rejected")
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
        # In place of the start: another payload that was sealed for the same run, and names it too.
        (visit, spec, sealed_values, carried),
    ):
        handle = await intruder.start(run_id, *arguments)
        with pytest.raises(WorkflowFailureError):
            await handle.result()


async def test_a_caller_with_the_keys_but_not_the_setting_is_refused_by_the_run(
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
        await before.client.line.signal(run_id, "pause", commands.Pause())

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


async def test_optional_encryption_takes_plain_payloads_but_none_of_another_run(
    temporal: TemporalClient,
) -> None:
    site = Site(connected(temporal, Settings(encryption_keys=a_key())), paying())
    intruder = Intruder(temporal, site)
    async with site.worker():
        run_id, _ = await asking(site)
        other, _ = await asking(site)
        await site.client.run(other).respond(response="yes", principal=ANYBODY)
        (answer,) = await intruder.updates(other, "respond")
        await intruder.refused(run_id, answer)

        plain = {"response": "yes", "principal": {"subject": "ada", "capabilities": ["pay"]}}
        assert await intruder.update(run_id, "respond", plain) is None
        await question(site, run_id, "confirm")
        await intruder.signal(run_id, "pause")
        await site.until(run_id, "paused")
        await intruder.signal(run_id, "resume")
        await site.until(run_id, "awaiting-input")
        await replays(site, run_id)


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
    assert "sealed for no run" in await intruder.refused(run_id, forged)

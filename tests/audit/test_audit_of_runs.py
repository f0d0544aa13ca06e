"""The contents of a run's audit."""

from __future__ import annotations

from typing import Any

from audited_site import AuditedSite
from sample_graphs import State, gated
from stack import problem, served
from temporal_site import ANYBODY
from temporalio.client import Client as TemporalClient

from abeyance import END, START, Graph
from abeyance.api.app import create_app
from abeyance.core.json import sha256


def of_type(lines: list[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == type_]


async def test_the_audit_says_who_did_what_and_what_they_were_shown(
    temporal: TemporalClient,
) -> None:
    site = AuditedSite(temporal, gated(capability="payments:approve"))
    async with site.worker():
        run_id = await site.start({"amount": 31337}, started_by="bea")
        view = await site.until(run_id, "awaiting-input")
        run = site.client.run(run_id, site.graphs["gated"])
        await run.send("half is enough", message_id="m1", principal=ANYBODY)
        await run.pause("audit", principal=ANYBODY)
        await site.until(run_id, "paused")
        await run.edit_values({"amount": 80}, principal=ANYBODY)
        await run.resume(principal=ANYBODY)
        await run.respond(response={"approved": True}, note="as agreed", principal=ANYBODY)
        ended = await site.ended(run_id)
    lines = await site.audit(run_id)

    types = [line["type"] for line in lines]
    assert types[0] == "run.started"
    assert types[-2:] == ["run.completed", "end"]
    assert lines[0]["actor"] == "bea"
    (opened,) = of_type(lines, "interrupt.opened")
    assert opened["shown"]["prompt"] == "Pay 31337?"
    assert opened["shown"]["digest"] == view.interrupts[0].digest
    assert opened["shown"]["response_schema"]["properties"]["approved"]["type"] == "boolean"
    (changed,) = of_type(lines, "interrupt.changed")
    assert changed["shown"]["prompt"] == "Pay 80?"
    (answered,) = of_type(lines, "interrupt.answered")
    assert (answered["actor"], answered["answer"]) == ("ada", {"approved": True})
    assert answered["data"]["note"] == "as agreed"
    assert answered["data"]["answer_sha256"] == sha256({"approved": True})
    assert answered["capability"] == "payments:approve"
    (queued,) = of_type(lines, "message.queued")
    assert queued["message"] == {"text": "half is enough"}
    (edited,) = of_type(lines, "run.values_edited")
    assert (edited["actor"], edited["patch"]) == ("ada", {"amount": 80})
    assert [line["actor"] for line in lines if line["type"].startswith("run.paused")] == ["ada"]
    assert lines[-1]["run"]["values"]["amount"] == 80
    assert lines[-1]["time"] == ended.model_dump(mode="json")["ended_at"]


async def test_an_open_run_has_an_audit_up_to_now_without_a_worker(
    temporal: TemporalClient,
) -> None:
    site = AuditedSite(temporal, gated())
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
    site.client.line.patience = 2
    lines = await site.audit(run_id)

    assert lines[-1]["type"] == "open"
    assert lines[-1]["lines"] == len(lines)
    assert "answer" not in str(lines)


async def test_the_audit_has_a_large_question_whole(temporal: TemporalClient) -> None:
    graph = Graph("large", state=State)
    graph.interrupt("ask", prompt="long " * 10_000, payload={"kept": "yes"})
    graph.edge(START, "ask")
    graph.edge("ask", END)
    site = AuditedSite(temporal, graph)
    async with site.worker():
        run_id = await site.start()
        view = await site.until(run_id, "awaiting-input")
        (opened,) = of_type(await site.audit(run_id), "interrupt.opened")

    assert opened["shown"]["digest"] == view.interrupts[0].digest
    assert opened["shown"]["prompt"] == view.interrupts[0].prompt
    assert (len(opened["shown"]["prompt"]) > 9_000, opened["shown"]["payload"]) == (
        True,
        {"kept": "yes"},
    )


async def test_a_run_can_be_read_after_temporal_has_deleted_it(temporal: TemporalClient) -> None:
    site = AuditedSite(temporal, gated())
    async with site.worker():
        run_id = await site.start({"amount": 7}, labels={"team": "a"})
        await site.until(run_id, "awaiting-input")
        await site.client.run(run_id).respond(response={"approved": True}, principal=ANYBODY)
        ended = await site.ended(run_id)
        lines = await site.audit(run_id)
    async with served(create_app(site.settings, site.graphs, site.client)) as api:

        async def parts() -> list[Any]:
            told = [
                (await api.http.get(f"/runs/{run_id}{part}")).json()
                for part in ("", "/result", "/interrupts?status=all", "/events")
            ]
            # The transcripts are found only through Temporal.
            del told[1]["transcripts"]
            return told

        before = await parts()
        await site.forgotten(run_id)
        assert await parts() == before
        assert await site.audit(run_id) == lines
        run = site.client.run(run_id)
        assert (await run.view(), await run.labels()) == (ended, {"team": "a"})
        assert lines[-1]["type"] == "end"
        answer = {"response": {"approved": True}}
        problem(await api.http.post(f"/runs/{run_id}/respond", json=answer), 410, "gone")
        problem(await api.http.get("/runs/none/audit"), 404, "unknown_run")

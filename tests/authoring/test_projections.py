"""A run's state as people and programs see it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from core_drive import ADA, T0, Drive, at, chain, gate, graph

from abeyance import projections, views, wire
from abeyance.core import events
from abeyance.core.json import sha256
from abeyance.core.spec import START, Default, GoTo, InterruptSpec
from abeyance.core.terms import Terms

RUN = wire.StartRun(
    run_id="r", graph_version="v1", conversation_id="c1", labels={"team": "blue"}, started_by="ada"
)


def asking() -> Drive:
    """Return a run with three open questions and an answered one, beside code that runs."""
    run = Drive(
        graph(
            gate("ask", prompt="Pay {x}?", capability="pay", timeout=60),
            gate("default", timeout=90, on_timeout=Default(answer={"approved": None})),
            gate("goto", timeout=120, on_timeout=GoTo(node="n")),
            gate("told"),
            "n",
            ways=[(START, name) for name in ("ask", "default", "goto", "told", "n")],
        ),
        values={"x": 5},
    )
    run.wait(5)
    run.answer("told", {"approved": True})
    return run


def test_a_view_says_what_runs_and_what_it_waits_for() -> None:
    run = asking()
    run.send("m1")
    view = projections.run_view(run.state, RUN)

    assert (view.status, view.outcome, view.paused, view.ended_at) == ("running", None, False, None)
    assert (view.graph, view.graph_version, view.conversation_id) == ("g", "v1", "c1")
    assert (view.labels, view.started_by) == ({"team": "blue"}, "ada")
    assert (view.created_at, view.updated_at) == (T0, at(5))
    assert view.running == ["graph:g;node:n"]
    assert [entry.name for entry in view.interrupts] == ["ask", "default", "goto"]
    assert (view.queue_depth, view.max_queue_size) == (1, 100)
    assert (view.values, view.version, view.result) == ({"x": 5}, 1, None)
    assert view.metrics is not None
    assert (view.metrics.visits, view.metrics.messages_queued) == (5, 1)


def test_a_view_says_why_and_when_code_that_failed_runs_again() -> None:
    run = Drive(graph("n", ways=[(START, "n")]))
    run.retry("n", message="no bank", pause=60)

    assert projections.run_view(run.state, RUN).retrying == [
        views.RetryingView(
            node="g.n", address="graph:g;node:n", message="no bank", attempts=1, due=at(60)
        )
    ]
    run.tick(60)
    assert projections.run_view(run.state, RUN).retrying == []


def test_an_open_interrupt_shows_what_was_asked_and_what_happens_at_its_deadline() -> None:
    run = asking()
    ask, default, goto = projections.open_interrupts(run.state)

    assert (ask.prompt, ask.requested_capability, ask.status) == ("Pay 5?", "pay", "open")
    assert (ask.created_at, ask.deadline, ask.digest) == (T0, at(60), run.open("ask").digest)
    assert [entry.on_timeout for entry in (ask, default, goto)] == [
        "halt",
        {"default": {"approved": None}},
        "goto:n",
    ]


def test_a_settled_interrupt_shows_who_answered_and_when() -> None:
    (told,) = projections.settled_interrupts(asking().state)

    assert (told.name, told.status, told.answer) == ("told", "answered", {"approved": True})
    assert (told.answered_by, told.answered_at) == (ADA.subject, at(5))
    assert told.answer_sha256 is not None


def test_all_that_is_asked_is_shown() -> None:
    # The view must have every new field of a question: the code in between copies fields by name.
    asked = {entry.name for part in (InterruptSpec, Terms) for entry in fields(part)}

    # The view shows lengths of time as moments. A refusal names the limit of a too large result.
    lengths = {"timeout", "remind", "escalate"}
    # Only the worker knows the type that reads an answer, and whether its written form can differ.
    types = {"response_type", "rewrites"}
    hidden = {*lengths, *types, "max_result", "terms"}
    assert asked - views.InterruptView.model_fields.keys() == hidden


def test_a_held_question_shows_the_whole_answer_that_will_count() -> None:
    schema = {"properties": {"approved": {"type": "boolean"}}}
    run = Drive(chain(gate("ask", terms=Terms(hold=600.0), schema=schema), "work"))
    answer = {"approved": True, "arguments": {"text": "x" * 1_000}}
    run.answer("ask", answer, principal=ADA, note="half of it")
    id_ = run.open("ask").id

    shown = projections.interrupt(run.state, id_)
    assert (shown.status, shown.answered_by) == ("held", ADA.subject)
    assert (shown.answer, shown.note) == (answer, "half of it")
    assert shown.answer_sha256 == sha256(answer)
    short = projections.short_view(run.state, RUN).interrupts[0]
    assert (short.abridged, short.answer, short.answered_by) == (True, None, ADA.subject)
    run.tick(600)
    assert projections.interrupt(run.state, id_).answer is None


def test_an_answered_interrupt_survives_the_view_of_an_ended_run() -> None:
    run = asking()
    shown = projections.settled_interrupts(run.state)
    read = [views.InterruptView.model_validate_json(view.model_dump_json()) for view in shown]

    assert projections.ledger_of(read).settled == {run.settled("told").id: run.settled("told")}


def test_a_pause_shows_by_whom_and_for_how_long() -> None:
    run = asking()
    about = {"actor": "ada", "capabilities": ("*",), "reason": "lunch"}
    run.feed(events.Paused, timeout=60, on_timeout=GoTo(node="n"), **about)
    view = projections.run_view(run.state, RUN)

    assert (view.status, view.paused) == ("paused", True)
    assert view.pause == views.PauseView(
        since=at(5),
        actor="ada",
        reason="lunch",
        mode="after-node",
        deadline=at(65),
        on_timeout="goto:n",
    )


def test_a_closing_record_tells_what_became_of_everything() -> None:
    run = asking()
    run.send("m1", "please hurry")
    run.fail("n", "it broke")
    settled = projections.settled_interrupts(run.state)
    record = views.closing_record(projections.run_view(run.state, RUN), settled, {})

    assert (record.outcome, record.reason, record.values) == ("failed", "it broke", {"x": 5})
    assert record.view.interrupts == []
    assert (record.view.ended_at, record.view.outcome) == (at(5), "failed")
    assert record.view.error == views.ErrorView(
        code="node_failed", message="it broke", address="graph:g;node:n"
    )
    assert [(entry.message_id, entry.reason) for entry in record.undelivered] == [("m1", "failed")]
    assert {entry.name: entry.status for entry in record.interrupts} == {
        "told": "answered",
        "ask": "cancelled",
        "default": "cancelled",
        "goto": "cancelled",
    }
    assert views.ClosingRecord.model_validate_json(record.model_dump_json()) == record


def test_operators_are_shown_no_more_than_temporal_takes() -> None:
    shown: dict[str, Any] = {"reason": ["{text}"] * 40, "schema": {"type": "boolean"}}
    run = Drive(
        graph(
            gate("large", **shown, timeout=60, on_timeout=Default(answer=False)),
            *(gate(f"other{number}") for number in range(60)),
            ways=[(START, "large"), *((START, f"other{number}") for number in range(60))],
        ),
        values={"text": "x" * 1_500_000},
    )
    view = projections.short_view(run.state, RUN)
    large = view.interrupts[0]

    assert (view.open, len(view.interrupts), view.values) == (61, 50, {})
    assert (large.abridged, large.reason, large.response_schema) == (True, None, None)
    assert (large.digest, large.deadline) == (run.open("large").digest, at(60))
    assert len(view.model_dump_json()) < 100_000
    assert len(projections.run_view(run.state, RUN).interrupts[0].reason) == 40

"""Blocked visits: why, since when, and what lets them go on."""

from __future__ import annotations

from typing import Any

import pytest
from core_askers import ROOT
from core_drive import T0, Drive, chain, gate, graph

from abeyance.core import events
from abeyance.core.outcome import Blocked, Finished, Send, Stopped
from abeyance.core.spec import END, START, FunctionNode, Route
from abeyance.core.visit import Blockage, Running, Unroutable

WORK = "graph:g;node:work"


def blocked(run: Drive, visit: str = WORK, code: str = "code_missing", **fields: object) -> None:
    run.end(Blocked, visit=visit, code=code, message="deploy it", **fields)


def codes(run: Drive) -> list[tuple[str, str]]:
    facts = [*run.facts("node.blocked"), *run.facts("node.unblocked")]
    assert {fact.address for fact in facts} <= {WORK}
    return [(fact.type, str(fact.data["code"])) for fact in facts]


def test_a_blocked_visit_is_tried_again_with_its_journal_and_says_why_and_since_when() -> None:
    run = Drive(chain(FunctionNode(id="work", asks=(), local=True)))
    blocked(run, journal={"step": 1})
    visit = run.visit("work")

    first, second = run.orders("work")
    assert (first.local, first.blocked_by) == (True, None)
    assert (second.local, second.blocked_by, second.journal) == (False, "code_missing", {"step": 1})
    assert visit.blocked == Blockage(code="code_missing", message="deploy it", since=T0)
    assert run.status == "running"
    (fact,) = run.facts("node.blocked")
    assert (fact.address, fact.data) == (WORK, {"code": "code_missing", "message": "deploy it"})


def test_a_reason_is_published_once_and_its_end_too() -> None:
    run = Drive(chain("work"))
    run.feed(events.VisitBlocked, visit=WORK, code="code_missing", message="deploy it")
    run.wait(5)
    run.feed(events.VisitBlocked, visit=WORK, code="code_missing", message="deploy a newer one")
    assert run.visit("work").blocked == Blockage(
        code="code_missing", message="deploy a newer one", since=T0
    )
    run.feed(events.VisitBlocked, visit=WORK, code="storage_unavailable", message="mount it")
    run.feed(events.VisitBlocked, visit=WORK, code=None)
    assert run.state.visits[WORK].blocked is None
    run.feed(events.VisitBlocked, visit=WORK, code=None)
    run.finish("work")

    assert run.status == "completed"
    assert codes(run) == [
        ("node.blocked", "code_missing"),
        ("node.blocked", "storage_unavailable"),
        ("node.unblocked", "storage_unavailable"),
    ]


def test_the_end_of_its_code_ends_the_block_and_a_stop_does_not() -> None:
    run = Drive(chain("work"))
    blocked(run)
    run.end(Stopped, visit=WORK)
    assert run.visit("work").blocked is not None
    assert run.orders("work")[-1].blocked_by == "code_missing"
    run.finish("work")
    assert codes(run) == [("node.blocked", "code_missing"), ("node.unblocked", "code_missing")]


def test_a_visit_that_is_stopped_between_two_attempts_keeps_the_steps_that_its_worker_reported() -> (
    None
):
    run = Drive(chain("work"))
    run.feed(events.VisitBlocked, visit=WORK, code="code_missing", journal={"a": 1})
    run.feed(events.VisitBlocked, visit=WORK, code="code_missing", journal={"a": 1, "b": 2})
    run.feed(events.WorkerStarted)
    run.stopped("work")
    assert run.orders("work")[-1].journal == {"a": 1, "b": 2}


def test_a_blockage_of_a_visit_that_does_not_run_is_ignored() -> None:
    run = Drive(chain(gate("ask")))
    run.feed(events.VisitBlocked, visit="graph:g;node:ask", code="code_missing")
    run.feed(events.VisitBlocked, visit="graph:g;node:gone", code="code_missing")
    assert codes(run) == []


def test_a_worker_that_starts_has_blocked_visits_tried_again_and_no_others() -> None:
    run = Drive(graph("work", "other", ways=[(START, "work"), (START, "other")]))
    run.feed(events.WorkerStarted)
    assert run.stops == []
    blocked(run)
    run.feed(events.WorkerStarted)
    run.feed(events.WorkerStarted)
    assert run.stops == [(WORK, "worker-started", False)]
    run.stopped("work")
    assert len(run.orders("work")) == 3


def test_a_worker_that_starts_does_not_stop_a_visit_whose_steps_only_its_heartbeat_has() -> None:
    run = Drive(chain("work"))
    run.feed(events.VisitBlocked, visit=WORK, code="storage_unavailable", is_unread=True)
    run.feed(events.WorkerStarted)
    assert run.stops == []
    run.feed(events.VisitBlocked, visit=WORK, code="code_missing", message="deploy it")
    run.feed(events.WorkerStarted)
    assert run.stops == [(WORK, "worker-started", False)]


def test_a_blocked_finally_node_blocks_the_end_and_is_not_stopped() -> None:
    run = Drive(graph("a", "work", ways=[(START, "a")], finally_=["work"]))
    run.finish("a")
    blocked(run)
    run.feed(events.WorkerStarted)
    assert (run.status, run.stops) == ("ending", [])
    assert run.orders("work")[-1].blocked_by == "code_missing"
    run.finish("work")
    assert run.status == "completed"


@pytest.mark.parametrize("when", ["before the pause", "during it"])
def test_values_that_block_a_visit_can_be_edited_after_any_pause(when: str) -> None:
    edit = {"principal": ROOT, "patch": {"x": 2}, "version": 1}
    report = {"code": "values_incompatible", "message": "correct them", "visit": WORK}
    run = Drive(chain("work"), values={"x": "two"})
    if when == "before the pause":
        run.feed(events.VisitBlocked, **report)
        assert "pause it first, which" in run.refused(events.ValuesEdited, **edit).message
    run.pause()
    if when == "during it":
        run.feed(events.VisitBlocked, **report)
    told = run.visit("work").state
    assert isinstance(told, Running)
    assert told.stopping
    run.end(Stopped, visit=WORK)
    run.feed(events.ValuesEdited, **edit)
    run.resume()

    assert (run.started, run.values["x"]) == (["work", "work"], 2)


def test_a_cancelled_run_does_not_wait_for_a_blocked_visit() -> None:
    run = Drive(chain("work"))
    run.cancel(actor="ada")
    blocked(run, patch={"x": 7})
    assert (run.status, run.values["x"]) == ("cancelled", 7)


@pytest.mark.parametrize("by", [{"goto": "payout"}, {"sends": (Send(node="payout"),)}])
def test_a_target_that_only_newer_code_knows_holds_the_visit_with_what_it_did(
    by: dict[str, Any],
) -> None:
    run = Drive(graph(FunctionNode(id="work", to=("a",), asks=()), "a", ways=[(START, "work")]))
    run.end(Finished, visit=WORK, patch={"x": 7}, unpinned=("payout",), **by)
    visit = run.state.visits[WORK]

    assert isinstance(visit.state, Unroutable)
    assert visit.blocked is not None
    assert visit.blocked.code == "target_unknown"
    assert visit.blocked.message.startswith("'work' chose to go to 'payout', which")
    assert visit.blocked.message.endswith("does not have: migrate the run")
    assert (run.status, run.values["x"]) == ("running", 7)
    run.feed(events.WorkerStarted)
    assert len(run.orders("work")) == 1
    run.cancel(actor="ada")
    assert run.status == "cancelled"


def test_routes_that_chose_a_node_of_newer_code_run_again_until_they_choose_another() -> None:
    run = Drive(
        graph(
            "work",
            "a",
            ways=[(START, "work")],
            routes=[Route(source="work", name="r", targets=("a", END))],
        )
    )
    run.end(Finished, visit=WORK, patch={"x": 7}, route_targets=("payout",), unpinned=("payout",))
    (order,) = run.decisions()
    assert (order.values["x"], order.targets) == (7, ("a", END))
    assert (order.local, order.blocked_by) == (False, "target_unknown")
    assert isinstance(run.visit("work").state, Running)
    told = run.facts("node.blocked")[-1].data["message"]
    assert str(told).endswith("deploy code that chooses another node, or migrate it")

    blocked(run, code="target_unknown")
    assert len(run.decisions()) == 2
    run.end(Finished, visit=WORK, route_targets=("a",))
    assert run.running == ["a"]
    assert codes(run) == [
        ("node.blocked", "target_unknown"),
        ("node.unblocked", "target_unknown"),
    ]
    assert len(run.orders("work")) == 1

"""Migrate, retry and fork: take a run apart, and put it together for another graph, a second try, or as
a copy.

Each function takes a whole run and returns a whole run, and has no effects. Start the result with the
event `Restored`: it publishes what has happened, and starts what can start (`RunState.resumption`).

A retry and the fork of an ended run begin with `Ending.before`: the run as it was when it came to its
end. So the closing record of a run has to keep its whole state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from abeyance.core import (
    approvals,
    authority,
    directives,
    duties,
    interrupts,
    items,
    ledger,
    migration,
    operator_questions,
    reminders,
)
from abeyance.core.copying import replace
from abeyance.core.effects import Publish
from abeyance.core.json import Json, rfc3339
from abeyance.core.ledger import Interrupt
from abeyance.core.mailbox import Mailbox
from abeyance.core.outcome import (
    CALL_STARTED,
    Failed,
    Finished,
    Stopped,
    VisitOutcome,
    has_begun,
    key_of,
)
from abeyance.core.policy import Principal
from abeyance.core.spec import Else, FunctionNode, GraphSpec, InterruptNode
from abeyance.core.state import Counters, Ending, Resumption, RunState
from abeyance.core.visit import (
    Approval,
    Nested,
    Ready,
    Running,
    Transition,
    Visit,
    Waiting,
    transition,
)
from abeyance.core.working_state import WorkingState
from abeyance.errors import Code, Refusal


def migrated(
    state: RunState,
    spec: GraphSpec,
    *,
    patch: Mapping[str, Json],
    renames: Mapping[str, str],
    now: datetime,
) -> RunState:
    """Return the run in another version of its graph.

    `renames` maps names of nodes of the run's graph to those in `spec`, in nested graphs as
    `outer.inner`. A node that is not in it keeps its name. `patch` sets fields of the values. A graph
    that is equal, without a patch, changes nothing.

    Raises the Refusal `cannot_migrate` if anything has no place in `spec`. Its detail `obstacles` lists
    all of it, each as `{"what", "name", "why", "remedy"}`, with an `address` if there is one.
    """
    migration.refuse(state, spec, changes=patch, renames=renames)
    draft = WorkingState(state, now)
    migration.migrate(draft, spec, changes=patch, renames=renames)
    return _made(draft, {})


def retried(
    state: RunState,
    *,
    now: datetime,
    principal: Principal,
    spec: GraphSpec | None = None,
    versions: tuple[str, str],
    patch: Mapping[str, Json],
    renames: Mapping[str, str],
) -> RunState:
    """Return a run that failed, was halted or was cancelled, open again at the point where it ended.

    Finished visits, answers, messages, counters and keys are kept. The visits that were open run again,
    with their journals, and open questions are open under their ids, with deadlines moved by the time
    that the run was over; one whose deadline had passed gets its whole time again. What finally nodes
    have changed is not kept: they run at each end. `spec`, `patch` and `renames` are those of
    `migrated`; `spec` None keeps the graph. `versions` are as in `events.Migrated`.

    Raises the Refusal `not_finished` if the run is open, `run_finished` if it completed,
    `capability_required` if the principal may not retry it, and `cannot_migrate` as `migrated` does.
    """
    ending = _ending_of(state, "retried")
    if ending.outcome == "completed":
        raise Refusal(
            Code.RUN_FINISHED,
            "The run completed, so there is nothing to retry. Fork it to run it again from its past.",
            run_status=str(state.status),
        )
    before, outcomes = _reopened(state, ending)
    spec = before.spec if spec is None else spec
    if patch or spec != before.spec:
        authority.demand(before, principal, "retry the run")
    else:
        why = "Nothing that was approved changes."
        authority.demand_only(principal, authority.CONTROL, doing="retry the run", why=why)
        for visit, may_have_happened in _done_again(before, outcomes):
            operator_questions.demand_repeat(
                before, visit, principal, may_have_happened=may_have_happened
            )
    migration.refuse(before, spec, changes=patch, renames=renames)
    draft = WorkingState(before, now)
    draft.state.last_activity_at = now
    draft.publish(
        "run.retried",
        before.root.address,
        principal.subject,
        outcome=ending.outcome,
        reason=ending.reason,
        ended_at=rfc3339(ending.since),
        from_version=versions[0],
        to_version=versions[1],
        fields=sorted(patch),
    )
    items.forget_all_counts(draft)
    for entry in list(before.ledger.open.values()):
        deadline, since = entry.deadline, ending.since
        if entry.held is not None:
            # Its run was ended while the yes could be taken back, so that has to be given again.
            left = tuple(vote for vote in entry.votes if not vote.people & entry.held.people)
            draft.open[entry.id] = reminders.reopened(entry, now, left)
        else:
            if deadline is not None:
                since = entry.created_at if deadline <= since else since
                deadline += now - since
            again = replace(entry, deadline=deadline)
            draft.open[entry.id] = reminders.shifted(again, since, now - since, now)
        interrupts.publish_opened(draft, draft.open[entry.id])
    migration.migrate(draft, spec, changes=patch, renames=renames)
    return _made(draft, outcomes)


def forked(
    state: RunState,
    *,
    run_id: str,
    salt: str,
    back: int,
    now: datetime,
    principal: Principal,
) -> RunState:
    """Return a new, open run with the past of another, which may be open or over and stays as it is.

    `back` is how many finished visits of the branch that moved last are undone, and run again; 0 for
    none. Visits that were running start again, with their journals. Open questions are asked under ids
    of the new run, with deadlines that begin anew. An approval is for one run: every gate whose effects
    lie ahead is asked again. Messages stay with the original.

    Raises the Refusal `no_such_past` if the run cannot go back so far; its detail `most` is how far it
    can. Raises `capability_required` if the principal may not fork it, and `not_finished` while it ends.
    """
    if state.ending is None:
        source, outcomes = state, _outcomes(state, {})
    else:
        source, outcomes = _reopened(state, _ending_of(state, "forked"))
    authority.demand(source, principal, "fork the run")
    source = replace(
        source,
        run_id=run_id,
        salt=salt,
        created_at=now,
        last_activity_at=now,
        mailbox=Mailbox(),
        todos=(),
        pause=None,
        counters=Counters(visits=source.counters.visits),
        keys={},
        receipts_kept=0,
        starters=tuple(dict.fromkeys((*source.starters, principal.subject))),
    )
    draft = WorkingState(source, now)
    items.forget_all_counts(draft)
    _go_back(draft, back)
    for visit in list(draft.state.visits.values()):
        _forget_gates(draft, draft.visit(visit.address))
    _inherit_approvals(draft)
    # What has happened so far was no event of the new run.
    draft.effects.clear()
    draft.state.events_published = 0
    draft.publish(
        "run.forked",
        source.root.address,
        principal.subject,
        origin=state.run_id,
        back=back,
    )
    asked = [*draft.open.values()]
    draft.open.clear()
    draft.settled.clear()
    for entry in asked:
        if entry.kind == "static" and entry.name == operator_questions.FORKED:
            # Which approval comes first may be another one here.
            transition(draft.visit(entry.visit), "resume", Ready(stage="before"))
        else:
            _ask_in_fork(draft, entry)
    return _made(draft, outcomes)


def _made(draft: WorkingState, outcomes: Mapping[str, VisitOutcome]) -> RunState:
    facts = tuple(effect for effect in draft.effects if isinstance(effect, Publish))
    running = {visit.code_address for visit in draft.state.visits_in(Running)}
    ended = {key: outcome for key, outcome in outcomes.items() if key in running}
    state = draft.frozen()
    if not facts and not ended:
        return state
    return replace(state, resumption=Resumption(facts=facts, outcomes=ended))


# The end of a run, undone


def _ending_of(state: RunState, what: str) -> Ending:
    if state.ending is None or not state.finished:
        raise Refusal(
            Code.NOT_FINISHED,
            f"The run is {state.status}, and can be {what} when it has ended.",
            run_status=str(state.status),
        )
    return state.ending


def _reopened(state: RunState, ending: Ending) -> tuple[RunState, dict[str, VisitOutcome]]:
    """Return an ended run as it was before its end, with what has come since, and how each visit that ran
    then has ended.
    """
    before = ending.before
    assert before is not None  # noqa: S101 every ending keeps it
    outcomes = _outcomes(before, ending.outcomes)
    root = before.root
    # Visits of finally nodes get addresses of their own at each end.
    numbers = {
        name: number
        for name, number in state.root.ordinals.items()
        if name in state.spec.finally_nodes
    }
    counters = state.counters
    if not before.counters.visits:
        # It failed before any node was entered.
        counters = replace(counters, visits=0)
    reopened = replace(
        before,
        scopes={
            **before.scopes,
            root.address: replace(root, ordinals={**root.ordinals, **numbers}),
        },
        visits={key: _without_unread(visit, ending) for key, visit in before.visits.items()},
        mailbox=state.mailbox,
        counters=counters,
        transcripts=state.transcripts,
        keys=state.keys,
        receipts_kept=state.receipts_kept,
        events_published=state.events_published,
        pause=None,
    )
    return reopened, outcomes


def _without_unread(visit: Visit, ending: Ending) -> Visit:
    """Return a visit without the messages that were reported because its code never began."""
    match ending.outcomes.get(visit.address):
        case Stopped(begun=False) if visit.activations == 1:
            return replace(visit, inbox=replace(visit.inbox, delivered=()))
        case _:
            return visit


def _outcomes(state: RunState, known: Mapping[str, VisitOutcome]) -> dict[str, VisitOutcome]:
    """Return how each running visit has ended; what was never reported was stopped."""
    return {
        visit.code_address: _outcome(visit, known.get(visit.address))
        for visit in state.visits_in(Running)
    }


def _outcome(visit: Visit, known: VisitOutcome | None) -> VisitOutcome:
    match known:
        case Finished():
            # What it had not read is in the mailbox already.
            return replace(known, messages_read=None)
        case None:
            return Stopped(journal=_as_started(visit, visit.checkpoint.journal))
        case Failed(journal=None):
            return Stopped(journal=_as_started(visit, visit.checkpoint.journal))
        case Failed(journal=journal):
            return Stopped(journal=journal)
        case _:
            return known


def _as_started(visit: Visit, journal: Json) -> Json:
    """Return the journal of a visit that ended without a report.

    A call that may run only once may have been made, so its code has to ask what became of it.
    """
    if visit.call is None or not visit.call.once:
        return journal
    steps = dict(journal or {})
    asked = sum(key.startswith(key_of("outcome", "")) for key in visit.questions.answers)
    steps[CALL_STARTED] = max(asked + 1, steps.get(CALL_STARTED, 0))
    return steps


def _done_again(
    state: RunState, outcomes: Mapping[str, VisitOutcome]
) -> Iterator[tuple[Visit, bool]]:
    """Yield the visits whose code a retry runs again, and whether what it does may have happened."""
    for kind in (Ready, Running):
        for visit in state.visits_in(kind):
            outcome = outcomes.get(visit.address)
            if not visit.activations or isinstance(outcome, Finished):
                continue
            began = outcome is None or visit.activations > 1 or has_begun(outcome)
            # People are asked what became of a call that may run only once.
            is_asked = visit.call is not None and visit.call.once
            is_over = visit.routing is not None
            yield visit, began and not (is_asked or is_over)


# The past of a fork


def _go_back(draft: WorkingState, back: int) -> None:
    visit = next(directives.branches(draft.state), None)
    scope = [*draft.state.scopes][-1] if visit is None else visit.scope
    most = directives.most_steps_back(draft.state, scope, visit)
    if not 0 <= back <= most:
        visits = "1 visit" if most == 1 else f"{most} visits"
        raise Refusal(
            Code.NO_SUCH_PAST,
            f"The run cannot be forked there: it can go back {visits}, and not {back}. Only the last "
            "visits of a graph with one branch can be undone.",
            most=most,
        )
    if back:
        directives.go_back(
            draft,
            scope,
            visit,
            back - 1,
            by=None,
            reason="the run was forked before it",
            # Its gate may have led to more, which is not done again (`_inherit_approvals`).
            to_the_gate=False,
        )


def _forget_gates(draft: WorkingState, visit: Visit) -> None:
    """Drop the answers to gates of a visit that is not over, and what it has not read."""
    visit.blocked = None
    visit.inbox = replace(visit.inbox, taken=visit.inbox.taken[: visit.inbox.read_count])
    own = {each.key for each in visit.approvals if each.gate == visit.address and not each.is_open}
    given = {*visit.questions.answers}
    gates = given if visit.call is not None else own & given
    visit.questions = visit.questions.without(gates)
    visit.approvals = tuple(
        each for each in visit.approvals if each.gate != visit.address or each.key not in gates
    )
    if visit.routing is None or not gates:
        return
    # Its rules are evaluated again, and ask all that they ask.
    for entry in interrupts.of_visit(draft, visit.address):
        del draft.open[entry.id]
    visit.routing = replace(visit.routing, is_stale=True)
    name: Transition = "resume" if isinstance(visit.state, Waiting) else "proceed"
    transition(visit, name, Ready(stage="after"))


def _inherit_approvals(draft: WorkingState) -> None:
    """Let no approval of the original count without being given again.

    A gate is asked again if nothing is done twice by that. Else its approval is confirmed where the fork
    goes on.
    """
    state = draft.state
    at_code = {
        each.gate
        for visit in state.visits.values()
        if isinstance(state.graph_of(visit.scope).nodes[visit.node], FunctionNode)
        for each in visit.approvals
    }
    begun: set[str] = set()

    def found(all_: tuple[Approval, ...]) -> tuple[Approval, ...]:
        begun.update(each.gate for each in all_ if each.begun)
        return all_

    def inherited(each: Approval) -> Approval:
        if each.is_open:
            return each
        # If code follows only behind the item or the nested graph, all of that would be done again.
        is_within = each.members or state.scopes[each.scope].visit is not None
        leaves = is_within and each.gate not in at_code
        if leaves or not _is_untouched(state, each, is_begun=each.gate in begun):
            return replace(each, inherited=True)
        return replace(each, broken=True)

    for change in (found, lambda all_: tuple(map(inherited, all_))):
        for scope in list(draft.state.scopes):
            approvals.put_all(draft, scope, (), change)


def _is_untouched(state: RunState, approval: Approval, *, is_begun: bool) -> bool:
    """Return whether nothing was done at a gate, by its own code, nor behind it: no visit, no nested
    graph, and no step of code. `is_begun`: on any branch something behind it has begun.
    """
    node = state.graph_of(approval.scope).nodes[approval.node]
    if approval.routing is None and not isinstance(node, InterruptNode):
        return False
    trail = state.scopes[approval.scope].trail
    is_last = bool(trail) and trail[-1].address == approval.gate
    if not is_begun:
        return is_last or not _may_split(state.graph_of(approval.scope), approval.node)
    return is_last and not any(
        visit.checkpoint.journal or isinstance(visit.state, Nested)
        for visit in state.visits.values()
        if approvals.covers(approval.gate, visit.approvals)
    )


def _may_split(graph: GraphSpec, gate: str) -> bool:
    """Return whether several branches may follow a gate before code runs: of one that is over nothing is
    left.
    """
    gates = [gate]
    for name in gates:
        ways = [way for way in graph.edges_from(name) if not isinstance(way.condition, Else)]
        if len(ways) > 1 or len(graph.routed_from(name)) > 1:
            return True
        following = graph.successors(name).difference(gates)
        gates += [each for each in following if isinstance(graph.nodes.get(each), InterruptNode)]
    return False


def _ask_in_fork(draft: WorkingState, entry: Interrupt) -> None:
    """Ask an open question under an id of the new run."""
    run_id, visit = draft.state.run_id, draft.state.visits[entry.visit]
    ordinal = visit.questions.ask_counts[entry.key]
    place = (run_id, entry.address, entry.name, ordinal, entry.kind)
    id_ = ledger.interrupt_id(*place, salt=draft.state.salt)
    whole = None if entry.deadline is None else entry.deadline - entry.created_at
    asked = replace(
        ledger.reopened(entry, draft.now, ()),
        id=id_,
        claim=None,
        barred=duties.barred(draft.state, visit, entry.terms, entry),
        created_at=draft.now,
        deadline=None if whole is None else draft.now + whole,
        parents=tuple(
            interrupts.unit(run_id, parent.address, parent.reason) for parent in entry.parents
        ),
    )
    asked = reminders.shifted(asked, entry.created_at, draft.now - entry.created_at, draft.now)
    number = interrupts.publish_opened(draft, asked)
    draft.open[id_] = replace(asked, number=number)

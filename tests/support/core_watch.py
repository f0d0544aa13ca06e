"""An observer that sees only the effects of a run, and checks the promises against them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from abeyance.core import events, machine
from abeyance.core.effects import Effect, Finish, Publish, RunNode, StopNode, VisitInput, Yield
from abeyance.core.json import Json, size
from abeyance.core.mailbox import size_of
from abeyance.core.outcome import Failed, Finished
from abeyance.core.spec import END, FunctionNode, GraphSpec, Node, SubgraphNode
from abeyance.core.state import RunState, Status
from abeyance.core.tables import ALL
from abeyance.core.visit import PAUSED, Nested, Ready, Running, Waiting

TERMINAL = {Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.HALTED}
SETTLING = {"interrupt.answered", "interrupt.expired", "interrupt.cancelled"}


class Watch:
    """The effects of one run so far: `orders` and `stops` without an outcome yet, and published facts."""

    def __init__(self) -> None:
        self.orders: dict[str, VisitInput] = {}
        self.stops: set[str] = set()
        self.over: list[str] = []
        self.opened: list[str] = []
        self.settled: list[str] = []
        self.accepted: list[str] = []
        self.delivered: list[str] = []
        self.undelivered: list[str] = []
        self._done: set[str] = set()
        self._told_to: dict[str, Mapping[str, Json]] = {}
        self._noticed: set[tuple[str, str, str]] = set()
        self._are_edited = False
        self._starts: Counter[str] = Counter()
        self._facts = 0
        self._finishes = 0
        self._task_orders = 0
        self._task_bytes = 0

    def saw(
        self,
        before: RunState,
        event: events.Event,
        after: RunState,
        effects: tuple[Effect, ...],
    ) -> None:
        """Take a step of the run. Raises AssertionError if the step breaks a promise."""
        self._spec = after.spec
        ended: str | None = None
        match event:
            case events.TaskBegan() | events.Restored() if not before.finished:
                self._task_orders = self._task_bytes = 0
            case events.VisitEnded(visit=ended, outcome=Finished() | Failed()):
                self._has_ended(after, ended)
            case events.VisitEnded(visit=ended):
                self._has_stopped(ended)
            case _:
                pass
        for effect in effects:
            match effect:
                case RunNode(input=given):
                    self._ordered(before, after, given)
                case StopNode(visit=visit):
                    # Due deadlines come first, and may stop the visit whose outcome comes next. So may a
                    # retry, which begins with the outcomes that code had before.
                    known = before.resumption.outcomes if before.resumption else ()
                    assert visit in self.orders or visit == ended or visit in known
                    self._is_to_stop(effect)
                case Publish():
                    # The run publishes the facts of a retry later.
                    assert effect.time == event.now or before.resumption is not None
                    self._told(effect)
                case Yield():
                    assert after.yielding
                case Finish():
                    self._finishes += 1

    def moved(self, new: Callable[[str], str]) -> None:
        """Map all addresses to new ones, because the run, at rest, is migrated."""
        assert not self.orders, "a run is migrated at rest"
        self.over = [*map(new, self.over)]
        self._done = {*map(new, self._done)}
        self._told_to = {new(visit): known for visit, known in self._told_to.items()}
        self._starts = Counter({new(visit): n for visit, n in self._starts.items()})

    def goes_on(self, state: RunState) -> None:
        """Continue from this state, in which no code runs: the run has ended, and is retried."""
        assert not self.orders, "a run that has ended runs nothing"
        assert state.resumption is not None
        # The patch of the retry may have withdrawn questions that were open at the end.
        opened = {f.data["id"] for f in state.resumption.facts if f.type == "interrupt.opened"}
        self.settled = [id_ for id_ in state.ledger.settled if id_ not in opened]
        self.opened = [*self.settled]
        self.over = [visit for visit in self.over if visit not in state.visits]
        self._done = {visit for visit in self._done if visit not in state.visits}
        self._starts = Counter({at: visit.activations for at, visit in state.visits.items()})
        self._facts = state.resumption.facts[0].number - 1
        self._noticed, self._finishes = set(), 0

    def graph_of(self, order: VisitInput) -> GraphSpec:
        """Return the graph that contains the node of an order."""
        graph = self._spec
        for name in order.path:
            node = graph.nodes[name]
            assert isinstance(node, SubgraphNode)
            graph = node.graph
        return graph

    def node_of(self, order: VisitInput) -> Node:
        """Return the node of an order."""
        return self.graph_of(order).nodes[order.node]

    def check(self, state: RunState) -> None:
        """Check every promise after a step."""
        self._a_terminal_status_is_for_ever(state)
        self._each_interrupt_is_settled_once_and_never_reopened(state)
        self._open_interrupts_belong_to_the_visits_that_wait(state)
        self._what_runs_was_ordered_and_is_bounded(state)
        self._fan_outs_and_nested_graphs_have_something_under_way(state)
        self._an_accepted_message_is_queued_delivered_or_reported(state)
        self._no_run_is_stranded(state)

    # Steps

    def _ordered(self, before: RunState, after: RunState, order: VisitInput) -> None:
        visit = order.address
        assert visit not in self.orders, "a visit that runs is not started again"
        assert visit not in self.over, "a visit that is over is not started again"
        # The event that ends one pause may begin another, which has waited.
        is_held = before.pause is not None and after.pause is before.pause
        assert not is_held or before.ending is not None, "nothing starts while paused"
        if order.kind == "visit":
            assert visit not in self._done, "work that is done is not started again"
            known = self._told_to.get(visit, {})
            assert all(order.own_answers.get(key) == known[key] for key in known), (
                "answers are kept"
            )
            self._told_to[visit] = order.own_answers
        self.orders[visit] = order
        self._starts[visit] += 1
        is_finally = order.node in after.spec.finally_nodes
        assert before.ending is None or is_finally, "nothing starts in a run that ends"
        self._task_orders += 1
        self._task_bytes += size(order.values) + size(order.answers)
        if order.kind == "visit":
            carried = [order.own_answers, order.journal, order.user_state, order.results]
            self._task_bytes += sum(map(size, carried))
            assert order.activation == self._starts[visit]
            assert (order.outcome is not None) == is_finally
        limit = after.limits.task_bytes
        assert self._task_bytes <= limit or self._task_orders == 1, "one task sends only so much"

    def _is_to_stop(self, stop: StopNode) -> None:
        if stop.abandon:
            self._is_over(stop.visit)
        elif stop.visit in self.orders:
            self.stops.add(stop.visit)

    def _has_stopped(self, visit: str) -> None:
        self.orders.pop(visit, None)
        self.stops.discard(visit)

    def _has_ended(self, after: RunState, visit: str) -> None:
        left = after.visits.get(visit)
        if left is None:
            self._is_over(visit)
            return
        # The visit waits: for a static interrupt, for routes, or for an operator after a failure.
        self._has_stopped(visit)
        if left.routing is not None:
            self._done.add(visit)

    def _is_over(self, visit: str) -> None:
        self._has_stopped(visit)
        self.over.append(visit)

    def _told(self, fact: Publish) -> None:
        assert fact.number == self._facts + 1, "facts are numbered without a gap"
        self._facts = fact.number
        match fact.type:
            case "interrupt.opened":
                self.opened.append(str(fact.data["id"]))
                self._is_asked_again(str(fact.address), str(fact.data["name"]))
            case "interrupt.reminded" | "interrupt.escalated":
                id_, at = str(fact.data["id"]), str(fact.data["at"])
                assert id_ in {*self.opened} - {*self.settled}, "only open questions remind"
                assert (fact.type, id_, at) not in self._noticed, "each notice comes once"
                self._noticed.add((fact.type, id_, at))
            case type_ if type_ in SETTLING:
                self.settled.append(str(fact.data["id"]))
            case "message.queued":
                self.accepted.append(str(fact.data["message_id"]))
            case "message.delivered":
                self.delivered.append(str(fact.data["message_id"]))
            case "message.returned":
                self.delivered.remove(str(fact.data["message_id"]))
            case "message.undelivered":
                self.undelivered.append(str(fact.data["message_id"]))
            case "run.values_edited":
                self._are_edited = True
            case "run.migrated" | "run.retried":
                self._are_edited |= bool(fact.data["fields"])
            case _:
                pass

    def _is_asked_again(self, address: str, name: str) -> None:
        # An earlier answer no longer counts once its question shows other values.
        for visit, known in self._told_to.items():
            if f"{address};".startswith(f"{visit};"):
                kept = {key: known[key] for key in known if key.rpartition("/")[2] != name}
                self._told_to[visit] = kept

    # Promises

    def _a_terminal_status_is_for_ever(self, state: RunState) -> None:
        assert state.finished == (state.status in TERMINAL)
        assert self._finishes == int(state.finished)
        if state.finished:
            assert not state.visits
            assert not state.ledger.open
            assert not state.mailbox.queue
            assert state.pause is None

    def _each_interrupt_is_settled_once_and_never_reopened(self, state: RunState) -> None:
        opened, settled = {*self.opened}, {*self.settled}
        assert len(opened) == len(self.opened)
        assert len(settled) == len(self.settled)
        assert settled <= opened
        assert {*state.ledger.open} == opened - settled
        kept = self.settled[-state.limits.settled_kept :]
        assert list(state.ledger.settled) == kept

    def _open_interrupts_belong_to_the_visits_that_wait(self, state: RunState) -> None:
        opened = [*state.ledger.open.values()]
        asking = {interrupt.visit for interrupt in opened}
        waiting = {visit.address for visit in state.visits_in(Waiting)}
        assert waiting <= asking
        # A visit with several processes runs while some of its questions are open. Code that asks also
        # runs again to renew its question after an edit of values that the question may show.
        again = {
            each.visit
            for each in opened
            if any(parent.address == each.visit for parent in each.parents)
        }
        if self._are_edited:
            again |= {each.address for each in state.visits.values() if each.checkpoint.interrupted}
        assert asking - waiting <= again

    def _what_runs_was_ordered_and_is_bounded(self, state: RunState) -> None:
        running = {visit.address for visit in state.visits_in(Running)}
        assert running == set(self.orders)
        assert len(running) <= state.limits.max_parallel_visits
        for scope in state.scopes.values():
            items = [item for fan in scope.fans.values() for item in fan.items]
            for counts in (scope.visit_counts, *(item.visit_counts for item in items)):
                assert max(counts.values(), default=0) <= state.limits.max_visits

    def _fan_outs_and_nested_graphs_have_something_under_way(self, state: RunState) -> None:
        if state.ending is not None or state.pause is not None:
            return
        visits = [*state.visits.values()]
        busy = {member.fan for visit in visits for member in visit.members}
        for scope in state.scopes.values():
            inner = {member.fan for fan in scope.fans.values() for member in fan.outer}
            assert set(scope.fans) <= busy | inner
            assert scope.visit is None or isinstance(state.visits[scope.visit].state, Nested)
            assert scope.visit is None or any(visit.scope == scope.address for visit in visits)

    def _an_accepted_message_is_queued_delivered_or_reported(self, state: RunState) -> None:
        queued = [message.message_id for message in state.mailbox.queue]
        assert len(queued) <= state.limits.max_queue_size
        unread = state.mailbox.queue
        assert state.mailbox.queued_bytes == sum(map(size_of, unread))
        expiries = [m.expires_at for m in unread if m.expires_at is not None]
        assert state.mailbox.first_expiry == min(expiries, default=None)
        inboxes = [visit.inbox for visit in state.visits.values()]
        held = [m.message_id for box in inboxes for m in (*box.delivered, *box.taken)]
        assert len({*held, *queued}) == len(held) + len(queued)
        assert sorted(self.accepted) == sorted(queued + self.delivered + self.undelivered)
        reported = [left.message_id for left in state.mailbox.undelivered]
        assert reported == self.undelivered
        assert state.counters.messages_queued == len(self.accepted)
        assert state.counters.messages_delivered == len(self.delivered)

    def _no_run_is_stranded(self, state: RunState) -> None:
        if state.finished or state.pause is not None:
            return
        assert state.visits, "nothing runs, is ready or waits, so the run has to be finished"
        ready = list(state.visits_in(Ready))
        assert state.ending is None or all(visit.is_finally for visit in ready)
        if state.rotation is not None:
            assert machine.may_rotate(state) == (not self.orders)
        elif len(ready) > state.visits.count(PAUSED, ALL) and not state.yielding:
            assert len(self.orders) == state.limits.max_parallel_visits


def senders(watch: Watch) -> list[tuple[str, list[str]]]:
    """Return the running visits that may fan out, each with its target nodes."""
    found = []
    for order in watch.orders.values():
        node = watch.node_of(order)
        if order.kind == "visit" and isinstance(node, FunctionNode):
            found.append((order.address, [name for name in node.to if name != END]))
    return [(visit, nodes) for visit, nodes in found if nodes]

"""Moving a run to another version of its graph.

Everything in a run that belongs to a node has to have its place in the new graph: a node of the same
kind, under the same name or the one that `renames` gives it. What has none is an obstacle. All obstacles
are reported at once, and nothing is moved then. Addresses are rewritten wherever they occur; ids,
prompts, schemas and digests of questions stay as people have seen them.

Code that runs is not stopped. It goes on under the address that it knows (`Running.before_migration`),
and the new graph routes what it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from abeyance.core import blocked, interrupts, items, messages, patch, visits
from abeyance.core.address import Address
from abeyance.core.events import Message
from abeyance.core.json import Json, why_not_json
from abeyance.core.ledger import Interrupt, Ledger
from abeyance.core.outcome import Call, Finished
from abeyance.core.spec import (
    END,
    Ask,
    GoTo,
    GraphSpec,
    InterruptNode,
    Node,
    OnPauseTimeout,
    OnTimeout,
    Parallel,
    SubgraphNode,
)
from abeyance.core.state import FanOut, Item, RunState, Scope, Step
from abeyance.core.visit import (
    Approval,
    BeforeMigration,
    FanOutBranch,
    Questions,
    Ready,
    RoutingDecision,
    Running,
    TakenToken,
    Token,
    Unroutable,
    Visit,
    transition,
)
from abeyance.core.working_state import WorkingState
from abeyance.errors import Code, Refusal

TimeoutAction = TypeVar("TimeoutAction", OnTimeout, OnPauseTimeout)
Path: TypeAlias = tuple[str, ...]
"""The names of nodes that lead from the run's graph to a node, with its own; empty for the graph."""

_RETIRE: Final = (
    "keep the node, as graph.retired({name!r})(function), or give its new name in `map`"
)


def refuse(
    state: RunState, spec: GraphSpec, *, changes: Mapping[str, Json], renames: Mapping[str, str]
) -> None:
    """Refuse to move a run to another graph if anything has no place there.

    Raises `cannot_migrate`, with all obstacles.
    """
    move = _Move(state, spec, renames)
    move.check_patch(changes)
    move.run(state)
    if not move.obstacles:
        return
    listed = [f"the {each['what']} {each['name']!r}: {each['why']}" for each in move.obstacles]
    raise Refusal(
        Code.CANNOT_MIGRATE,
        f"The run cannot move to version {spec.version} of {state.spec.name!r}. Nothing has changed. In "
        f"the way are {'; '.join(listed)}.",
        obstacles=move.obstacles,
    )


def migrate(
    draft: WorkingState,
    spec: GraphSpec,
    *,
    changes: Mapping[str, Json],
    renames: Mapping[str, str],
) -> None:
    """Move a run to another graph, and set fields of its values. `refuse` has found no obstacle."""
    if changes:
        # In the graph that has declared the questions which show these fields.
        root = draft.state.root
        items.put_values(draft, root.address, {**root.values, **changes})
        interrupts.values_edited(draft, root.address)
    if spec != draft.state.spec:
        draft.adopt(_Move(draft.state, spec, renames).run(draft.snapshot()))
    for visit in list(draft.state.visits_in(Unroutable)):
        _go_on(draft, draft.visit(visit.address))


def _go_on(draft: WorkingState, visit: Visit) -> None:
    """Let a visit go to the node that it chose, if the run's graph has it now."""
    assert visit.routing is not None  # noqa: S101 its code has ended
    if not visits.unknown_targets(draft.graph(visit.scope), visit.node, visit.routing.outcome):
        blocked.unblock(draft, visit)
        transition(visit, "migrate", Ready(stage="rules"))


def _kind(node: Node) -> str:
    if isinstance(node, SubgraphNode) and node.agent:
        return "agent"
    return node.kind


class _Move:
    """The way of a run from its graph to `new`: the new name of everything, and the `obstacles`."""

    def __init__(self, state: RunState, new: GraphSpec, renames: Mapping[str, str]) -> None:
        self.obstacles: list[dict[str, Json]] = []
        self._state = state
        self._new = new
        self._names: dict[Path, str] = {}
        self._graphs: dict[Path, tuple[GraphSpec, GraphSpec | None]] = {}
        self._addresses: dict[str, str] = {}
        self._targets: dict[str, str] = {}
        if new.name != state.spec.name:
            self._obstacle(
                *("graph", state.spec.name, f"the other graph is named {new.name!r}"),
                remedy="migrate to a version of the same graph",
            )
        unknown = dict(renames)
        self._pair(state.spec, new, (), "", unknown)
        for name in unknown:
            remedy = "correct the name in `map`"
            self._obstacle("rename", name, "the run's graph has no such node", remedy=remedy)

    def _pair(
        self,
        old: GraphSpec,
        new: GraphSpec | None,
        path: Path,
        prefix: str,
        renames: dict[str, str],
    ) -> None:
        """Pair the nodes of a graph with those of its new version. `prefix` is the new name of the
        graph's node, with a dot. What is used of `renames` is removed.
        """
        self._graphs[path] = old, new
        around = ".".join([*path, ""])
        chosen = {
            name: renames.pop(around + name).removeprefix(prefix)
            for name in old.nodes
            if around + name in renames
        }
        for name, node in old.nodes.items():
            inner = (*path, name)
            renamed = self._names[inner] = chosen.get(name, name)
            # A message may name a node of a nested graph; one of the run's graph comes first.
            self._targets.setdefault(name, renamed)
            counterpart = None if new is None else new.nodes.get(renamed)
            if renamed != name and new is not None:
                self._check_rename(inner, renamed, chosen, old, new)
            if isinstance(node, SubgraphNode):
                graph = counterpart.graph if isinstance(counterpart, SubgraphNode) else None
                if graph is not None and node.agent:
                    self._targets.setdefault(node.graph.name, graph.name)
                self._pair(node.graph, graph, inner, f"{prefix}{renamed}.", renames)

    def _check_rename(
        self, path: Path, name: str, chosen: Mapping[str, str], old: GraphSpec, new: GraphSpec
    ) -> None:
        if name not in new.nodes:
            why = f"the other graph has no node {name!r}"
        elif (
            name in old.nodes or [*chosen.values()].count(name) > 1 or self._was_visited(path, name)
        ):
            why = f"the run's graph has, or had, another node {name!r}"
        elif path[-1] in new.nodes:
            why = f"the other graph has a node {path[-1]!r} too"
        else:
            return
        remedy = "give the node a name of its own"
        self._obstacle("rename", ".".join(path), why, remedy=remedy)

    def _was_visited(self, path: Path, name: str) -> bool:
        scopes = self._state.scopes.values()
        return any(scope.path == path[:-1] and name in scope.ordinals for scope in scopes)

    def _obstacle(
        self, what: str, name: str, why: str, *, remedy: str, address: str | None = None
    ) -> None:
        found: dict[str, Json] = {"what": what, "name": name, "why": why, "remedy": remedy}
        if address is not None:
            found["address"] = address
        if found not in self.obstacles:
            self.obstacles.append(found)

    def _node(self, path: Path, what: str, address: str) -> str:
        """Return the new name of a node, where something of the run is."""
        old, new = self._graphs[path[:-1]]
        name, before = self._names.get(path, path[-1]), old.nodes.get(path[-1])
        if new is None or before is None:
            # What is around it has no place either, or the name was the author's fault.
            return name
        after = new.nodes.get(name)
        if after is None:
            why = f"the other graph has no node {name!r}"
        elif _kind(before) != _kind(after):
            why = f"{name!r} is a node of another kind there ({_kind(after)}, not {_kind(before)})"
        elif (path[-1] in old.finally_nodes) != (name in new.finally_nodes):
            why = f"{name!r} is a finally node in one of the two graphs only"
        else:
            return name
        remedy = _RETIRE.format(name=path[-1])
        self._obstacle(what, ".".join(path), why, remedy=remedy, address=address)
        return name

    def _target(self, path: Path, name: str, what: str, address: str) -> str:
        """Return the new name of a node of the graph at `path`, to which something goes later."""
        return name if name == END else self._node((*path, name), what, address)

    def _by_name(self, path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
        return {self._names.get((*path, name), name): value for name, value in values.items()}

    def address(self, text: str) -> str:
        """Return an address with the new names in it."""
        if text not in self._addresses:
            segments, passed = [], ""
            path: Path = ()
            for each in Address.parse(text).segments:
                passed = f"{passed};{each}" if passed else str(each)
                new = each
                match each.type:
                    case "graph" | "agent":
                        _, graph = self._graphs.get(path, (None, None))
                        new = each if graph is None else replace(each, id=graph.name)
                    case "node":
                        path = (*path, each.id)
                        new = replace(each, id=self._names.get(path, each.id))
                    case "tool":
                        # The call keeps the name that the model called.
                        visit = self._state.visits.get(passed)
                        path = (*path, each.id if visit is None else visit.node)
                    case _:
                        pass
                segments.append(new)
            self._addresses[text] = str(Address(tuple(segments)))
        return self._addresses[text]

    def _path(self, scope: str) -> Path:
        return self._state.scopes[scope].path

    # The run

    def run(self, state: RunState) -> RunState:
        """Return the run in its new graph."""
        old = {*state.spec.guarded_by, *state.earlier_guards}
        pause = state.pause
        if pause is not None:
            pause = replace(
                pause, on_timeout=self._on_timeout((), pause.on_timeout, state.root.address)
            )
        return replace(
            state,
            spec=self._new,
            earlier_guards=tuple(sorted(old - {*self._new.guarded_by})),
            visits={self.address(key): self._visit(v) for key, v in state.visits.items()},
            scopes={self.address(key): self._scope(s) for key, s in state.scopes.items()},
            ledger=Ledger(
                open={key: self._open(entry) for key, entry in state.ledger.open.items()},
                settled={
                    key: replace(entry, address=self.address(entry.address))
                    for key, entry in state.ledger.settled.items()
                },
            ),
            mailbox=replace(state.mailbox, queue=tuple(map(self._message, state.mailbox.queue))),
            pause=pause,
            transcripts={self.address(key): head for key, head in state.transcripts.items()},
            agent_memory=dict(self._memory(*each) for each in state.agent_memory.items()),
        )

    def _memory(self, key: str, memory: Mapping[str, Json]) -> tuple[str, Mapping[str, Json]]:
        scope, _, node = key.rpartition("/")
        name = self._node((*self._path(scope), node), "agent memory", scope)
        return f"{self.address(scope)}/{name}", memory

    def _message(self, message: Message) -> Message:
        if message.target is None:
            return message
        is_address = ";" in message.target or message.target == self._state.root.address
        target = self.address(message.target) if is_address else self._targets.get(message.target)
        moved = replace(message, target=target or message.target)
        try:
            messages.refuse_unknown_target(self._new, moved)
        except Refusal as refusal:
            remedy = "clear the messages of the run, or give the new name of the node in `map`"
            self._obstacle("message", message.message_id, refusal.message, remedy=remedy)
        return moved

    def _scope(self, scope: Scope) -> Scope:
        path, address = scope.path, scope.address
        graph = self._graphs[path][1]
        if graph is not None:
            self._fields(graph, scope.values, address)
        return replace(
            scope,
            address=self.address(address),
            visit=None if scope.visit is None else self.address(scope.visit),
            path=tuple(self._names[path[:depth]] for depth in range(1, len(path) + 1)),
            tokens=dict(self._tokens(path, key, come) for key, come in scope.tokens.items()),
            ordinals=self._by_name(path, scope.ordinals),
            visit_counts=self._by_name(path, scope.visit_counts),
            exempt_in_a_row=self._by_name(path, scope.exempt_in_a_row),
            answers=self._by_question(path, scope.answers),
            fans={self.address(key): self._fan(path, key, fan) for key, fan in scope.fans.items()},
            trail=tuple(self._step(path, step) for step in scope.trail),
            approvals=self._approvals(scope.approvals),
        )

    def _fields(self, graph: GraphSpec, names: Iterable[str], address: str) -> None:
        for name in names:
            if name not in graph.fields and not graph.open_values:
                why = f"the state of the other graph {graph.name!r} has no such field"
                remedy = "keep the field in the state"
                self._obstacle("field", name, why, remedy=remedy, address=address)

    def check_patch(self, changes: Mapping[str, Json]) -> None:
        """Find the obstacles to setting fields of the run's values."""
        root = self._state.root.address
        self._fields(self._new, changes, root)
        try:
            patch.refuse_misfits(self._new, changes)
        except patch.PatchError as error:
            self._obstacle("patch", self._new.name, str(error), remedy="correct the patch")
        if (fault := why_not_json(changes)) is not None:
            self._obstacle("patch", self._new.name, f"it is not JSON: {fault}", remedy="correct it")

    def _step(self, path: Path, step: Step) -> Step:
        return replace(
            step,
            node=self._node((*path, step.node), "finished visit", step.address),
            address=self.address(step.address),
            approvals=self._approvals(step.approvals),
        )

    def _edge(self, path: Path, key: str, address: str) -> str:
        """Return the key of a join in the new graph."""
        old, new = self._graphs[path]
        edge = next(each for each in old.edges if each.key == key)
        moved = replace(
            edge,
            sources=tuple(self._names.get((*path, source), source) for source in edge.sources),
            target=self._names.get((*path, edge.target), edge.target),
        )
        if new is not None and not any(e.key == moved.key and e.is_join for e in new.edges):
            why = f"the other graph has no join {moved.key!r}"
            remedy = "keep the join, or wait until the run has passed it"
            self._obstacle("join", key, why, remedy=remedy, address=address)
        return moved.key

    def _tokens(
        self, path: Path, key: str, come: Mapping[str, tuple[Token, ...]]
    ) -> tuple[str, Mapping[str, tuple[Token, ...]]]:
        first = next(token for queue in come.values() for token in queue)
        moved = {source: tuple(map(self._token, queue)) for source, queue in come.items()}
        return self._edge(path, key, first.visit), self._by_name(path, moved)

    def _token(self, token: Token) -> Token:
        approvals = self._approvals(token.approvals)
        return replace(token, visit=self.address(token.visit), approvals=approvals)

    def _fan(self, path: Path, address: str, fan: FanOut) -> FanOut:
        return replace(
            fan,
            outer=self._members(fan.outer),
            joins=tuple(self._edge(path, key, address) for key in fan.joins),
            items=[self._item(path, address, item) for item in fan.items],
            approvals=self._approvals(fan.approvals),
        )

    def _item(self, path: Path, address: str, item: Item) -> Item:
        return replace(
            item,
            joins_reached=tuple(self._edge(path, key, address) for key in item.joins_reached),
            answers=self._by_question(path, item.answers),
            visit_counts=self._by_name(path, item.visit_counts),
            approvals=self._approvals(item.approvals),
        )

    def _members(self, members: tuple[FanOutBranch, ...]) -> tuple[FanOutBranch, ...]:
        return tuple(replace(each, fan=self.address(each.fan)) for each in members)

    # Visits, and what they wait for

    def _visit(self, visit: Visit) -> Visit:
        path, address = self._path(visit.scope), visit.address
        node = (*path, visit.node)
        failure, route, state = visit.failure, visit.routing, visit.state
        moved = self.address(address)
        if isinstance(state, Running):
            state = self._running(node, address, state)
        return replace(
            visit,
            address=moved,
            scope=self.address(visit.scope),
            node=self._node(node, "visit", address),
            members=self._members(visit.members),
            call=None if visit.call is None else self._call(path, visit.call, address),
            state=state,
            approvals=self._approvals(visit.approvals),
            questions=self._questions(node, visit.questions),
            routing=None if route is None else self._routing(path, route, address),
            failure=None
            if failure is None or failure.address is None
            else replace(failure, address=self.address(failure.address)),
        )

    def _running(self, node: Path, address: str, running: Running) -> Running:
        """Return the state of code that goes on: it reports under the address, and chooses nodes by the
        names, that it was started with.
        """
        path, (old, new) = node[:-1], self._graphs[node[:-1]]
        before = running.before_migration
        if before is None:
            targets = {name: name for name in old.targets_of(node[-1])}
            before = BeforeMigration(address=address, targets=targets)
        targets = {name: self._names.get((*path, now), now) for name, now in before.targets.items()}
        allowed = () if new is None else new.targets_of(self._names[node])
        is_same = all(name == now and now in allowed for name, now in targets.items())
        if is_same and before.address == self.address(address):
            return replace(running, before_migration=None)
        return replace(running, before_migration=replace(before, targets=targets))

    def _call(self, path: Path, call: Call, address: str) -> Call:
        asked = tuple(
            replace(
                each,
                question=replace(
                    each.question,
                    on_timeout=self._on_timeout(path, each.question.on_timeout, address),
                ),
            )
            for each in call.interrupts
        )
        return replace(call, interrupts=asked)

    def _routing(self, path: Path, route: RoutingDecision, address: str) -> RoutingDecision:
        outcome = self._finished(path, route.outcome, address)
        decision = route.decision
        match decision:
            case GoTo(node=node):
                decision = replace(decision, node=self._target(path, node, "goto", address))
            case Parallel(nodes=nodes):
                targets = tuple(self._target(path, node, "goto", address) for node in nodes)
                decision = replace(decision, nodes=targets)
            case _:
                pass
        return replace(route, outcome=outcome, decision=decision)

    def _finished(self, path: Path, finished: Finished, address: str) -> Finished:
        def target(node: str) -> str:
            return self._target(path, node, "goto", address)

        sends = finished.sends
        return replace(
            finished,
            goto=None if finished.goto is None else target(finished.goto),
            route_targets=tuple(map(target, finished.route_targets)),
            sends=None
            if sends is None
            else tuple(replace(each, node=target(each.node)) for each in sends),
        )

    def _open(self, entry: Interrupt) -> Interrupt:
        path = self._path(entry.scope)
        node = (*path, self._state.visits[entry.visit].node)
        new = self._graphs[path][1]
        if entry.kind == "rule" and new is not None:
            rules = new.rules_on(self._names[node])
            if not any(
                isinstance(act, Ask) and act.question.name == entry.name
                for rule in rules
                for act in rule.actions
            ):
                why = f"no rule of the other graph asks {entry.name!r} after {self._names[node]!r}"
                remedy = "keep the rule, or wait for the answer"
                self._obstacle("question", entry.name, why, remedy=remedy, address=entry.address)
        is_own = entry.kind == "question"
        return replace(
            entry,
            address=self.address(entry.address),
            visit=self.address(entry.visit),
            scope=self.address(entry.scope),
            name=self._question(node, entry.name) if is_own else entry.name,
            key=self._question(node, entry.key) if is_own else entry.key,
            parents=tuple(replace(p, address=self.address(p.address)) for p in entry.parents),
            on_timeout=self._on_timeout(path, entry.on_timeout, entry.address),
        )

    def _on_timeout(self, path: Path, action: TimeoutAction, address: str) -> TimeoutAction:
        match action:
            case GoTo(node=node):
                return replace(action, node=self._target(path, node, "goto", address))
            case _:
                return action

    def _approvals(self, approvals: tuple[Approval, ...]) -> tuple[Approval, ...]:
        return tuple(map(self._approval, approvals))

    def _approval(self, approval: Approval) -> Approval:
        path, gate = self._path(approval.scope), approval.gate
        node = (*path, approval.node)
        route = approval.routing
        return replace(
            approval,
            gate=self.address(gate),
            scope=self.address(approval.scope),
            node=self._node(node, "approval", gate),
            key=self._question(node, approval.key),
            members=self._members(approval.members),
            routing=None if route is None else self._routing(path, route, gate),
            taken_tokens=tuple(
                TakenToken(
                    edge=self._edge(path, each.edge, gate),
                    source=self._names.get((*path, each.source), each.source),
                    token=self._token(each.token),
                )
                for each in approval.taken_tokens
            ),
        )

    # Questions of interrupt nodes, whose names are often those of their nodes

    def _question(self, node: Path, name: str) -> str:
        """Return the name that the question of an interrupt node has now; any other as it is."""
        return self._asked_by(node).get(name, name)

    def _questions(self, node: Path, own: Questions) -> Questions:
        names = self._asked_by(node)
        return replace(
            own,
            answers={names.get(key, key): each for key, each in own.answers.items()},
            ask_counts={names.get(key, key): each for key, each in own.ask_counts.items()},
            shown_hashes={names.get(key, key): each for key, each in own.shown_hashes.items()},
            shown_at={names.get(key, key): each for key, each in own.shown_at.items()},
        )

    def _by_question(self, path: Path, answers: Mapping[str, Json]) -> dict[str, Json]:
        names: dict[str, str] = {}
        for name in self._graphs[path][0].nodes:
            names.update(self._asked_by((*path, name)))
        return {names.get(name, name): answer for name, answer in answers.items()}

    def _asked_by(self, node: Path) -> Mapping[str, str]:
        """Return the old and the new name of an interrupt node's question, if it has another now."""
        old, new = self._graphs[node[:-1]]
        match old.nodes[node[-1]], None if new is None else new.nodes.get(self._names[node]):
            case InterruptNode(question=before), InterruptNode(question=after) if (
                before.name != after.name
            ):
                return {before.name: after.name}
            case _:
                return {}

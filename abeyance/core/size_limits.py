"""How much a visit is given when its code runs, and what people may add to that.

All of it travels in one piece, for which Temporal has a bound: beyond it a run would stand still, and no
answer, message or cancel would reach it any more. So an answer is refused if it would make the visit that
waits for it too large, and a visit that is too large without it fails.
"""

from __future__ import annotations

from collections.abc import Mapping

from abeyance.core import events, items, mailbox
from abeyance.core.json import Json, size
from abeyance.core.spec import FunctionNode
from abeyance.core.state import Failure, RunState, Visit
from abeyance.errors import Code, FailureCode, Refusal


def answers_of(state: RunState, visit: Visit) -> Mapping[str, Json]:
    """What people answered elsewhere, as a visit sees it; the answers to its own questions it has."""
    answers = items.answers_of(state, visit)
    if visit.call is not None:
        return answers
    own = {key.rpartition("/")[2] for key in visit.answers}
    return {name: answer for name, answer in answers.items() if name not in own}


def of(state: RunState, visit: Visit) -> int:
    """In bytes: what a visit would be given now."""
    values = items.values_of(state, visit)
    scope = state.scopes[visit.scope]
    carried = scope.size if values is scope.values else size(values)
    rest: list[Json] = [answers_of(state, visit), visit.answers]
    rest += [visit.journal, visit.user_state, visit.results]
    if visit.members:
        rest.append(items.item_of(state, visit.scope, visit.members[-1]).item)
    return carried + sum(map(size, rest)) + sum(map(mailbox.size_of, visit.inbox))


def failure(state: RunState, visit: Visit, bytes_: int) -> Failure | None:
    """The failure of a visit that would be given so many bytes; None if it may be."""
    if bytes_ <= (most := state.limits.visit_bytes):
        return None
    message = (
        f"{visit.node!r} would be given {bytes_} bytes of values, answers and steps, and may be given "
        f"{most}: keep what is large elsewhere, and a reference to it in the values"
    )
    return Failure(code=FailureCode.VISIT_TOO_LARGE, message=message)


def refuse_answers(state: RunState, event: events.Responded) -> None:
    """Raise the Refusal of answers that the visits could not be given that wait for them."""
    waiting = {
        entry.visit: entry
        for id_ in event.answers
        if (entry := state.ledger.open.get(id_)) is not None
    }
    added = sum(map(size, event.answers.values()))
    for address, entry in waiting.items():
        visit = state.visits[address]
        is_merged = not isinstance(state.node_of(visit), FunctionNode)
        _refuse(state, visit, added * (1 + is_merged), interrupt_id=entry.id)


def refuse_patch(state: RunState, event: events.ValuesEdited) -> None:
    """Raise the Refusal of an edit with which a visit that waits could not go on."""
    for visit in state.visits.values():
        _refuse(state, visit, size(event.patch))


def _refuse(state: RunState, visit: Visit, added: int, **told: str) -> None:
    before = of(state, visit)
    most = state.limits.visit_bytes
    # What is too large already fails when it goes on, and must be able to.
    if before <= most < before + added:
        raise Refusal(
            Code.PAYLOAD_TOO_LARGE,
            f"With this {visit.address} would be given {before + added} bytes, and it may be given "
            f"{most}: it carries {before} already. Say less, or give a reference to what is large.",
            limit=most,
            actual=before + added,
            **told,
        )

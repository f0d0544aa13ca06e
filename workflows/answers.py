"""Questions of a run to its worker about answers: authors' types are code, and a run has only data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from abeyance import names, wire
    from abeyance.core import events
    from abeyance.core.json import Json
    from abeyance.core.state import RunState
    from abeyance.errors import Code, Refusal
    from abeyance.runtime import answering
    from abeyance.workflows.activity_calls import LocalFailed, local_result
    from abeyance.workflows.worker_functions import TAKE_ANSWER

_WITHIN: Final = timedelta(seconds=5)
_ATTEMPTS: Final = RetryPolicy(maximum_attempts=3)


def typed(state: RunState, event: events.Responded) -> events.Responded:
    """Return an answer as the types read it. Only a validator may call this."""
    take = workflow.extern_functions()[TAKE_ANSWER]
    with workflow.unsafe.sandbox_unrestricted():
        return answering.typed(state, event, take)


def refuse_edit(state: RunState, patch: Mapping[str, Json]) -> None:
    """Raise `invalid_input` for values that the worker's model rejects. Only a validator may call this.

    The sender checks the values by its own model, but a deploy may have left that model behind.
    """
    given = _given(state, patch)
    with workflow.unsafe.sandbox_unrestricted():
        _values_of(workflow.extern_functions()[TAKE_ANSWER](given))


def _values_of(taken: wire.TakenAnswer) -> Mapping[str, Json]:
    """Return the values of an edit as the worker's model writes them. Raises `invalid_input`."""
    if taken.errors:
        errors = [{**e, "pointer": e["pointer"].removeprefix("/values")} for e in taken.errors]
        why = "; ".join(f"{each['pointer']}: {each['message']}" for each in errors)
        raise Refusal(Code.INVALID_INPUT, f"{why}.", errors=errors)
    values: Mapping[str, Json] = taken.answer["values"]
    return values


def _given(state: RunState, patch: Mapping[str, Json]) -> wire.GivenAnswer:
    """Return an edit of the run's values in the form of an answer to a breakpoint with that edit."""
    shown, edit = {"values": dict(state.root.values)}, {"values": dict(patch)}
    return wire.GivenAnswer(root=state.spec.name, kind="static", shown=shown, answer=edit)


async def written_edit(state: RunState, event: events.ValuesEdited) -> events.ValuesEdited:
    """Return an edit of values as the worker's model writes them, or unchanged if it rewrites none.

    Raises the Refusals `invalid_input` and `unavailable`.
    """
    fields = state.spec.fields
    if not any(fields[name].rewrites for name in event.patch if name in fields):
        return event
    (taken,) = await _write([_given(state, event.patch)])
    return replace(event, written=_values_of(taken))


async def written(state: RunState, event: events.Responded) -> events.Responded:
    """Return an accepted answer as its types write it, or unchanged if they cannot rewrite it.

    Raises the Refusal `unavailable`.
    """
    given = answering.to_write(state, event)
    if not given:
        return event
    taken = await _write([*given.values()])
    return answering.with_taken(event, dict(zip(given, taken, strict=True)))


async def _write(given: list[wire.GivenAnswer]) -> list[wire.TakenAnswer]:
    try:
        return await local_result(
            workflow.start_local_activity(
                names.WRITE_ANSWERS_ACTIVITY,
                given,
                result_type=list[wire.TakenAnswer],
                schedule_to_close_timeout=_WITHIN,
                retry_policy=_ATTEMPTS,
            )
        )
    except LocalFailed as error:
        raise Refusal(
            Code.UNAVAILABLE, "The answer could not be read as its type in time. Repeat the call."
        ) from error

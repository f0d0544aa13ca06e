"""Running the hooks of an agent at one event.

Hooks run in order, each on the event as the previous ones changed it; their questions before a call are
collected and opened together. Nothing fails open: a hook that raises, makes an invalid change, or loses
its question denies the call.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from abeyance.agents import tool_results
from abeyance.agents.hooks import (
    AfterToolCall,
    BeforeToolCall,
    Cancel,
    HookEvent,
    HookInterrupts,
    listens,
)
from abeyance.agents.state import AgentState
from abeyance.agents.tool_errors import MAX_ERROR_CHARS, CallError, described
from abeyance.authoring.callables import call
from abeyance.authoring.interrupts import CompositeInterrupt, Interrupt, Suspended, suspended_by
from abeyance.core.json import Json, canonical, why_not_json
from abeyance.core.outcome import Asked
from abeyance.core.text import truncate

E = TypeVar("E", bound=HookEvent)

Check: TypeAlias = Callable[[Any], Any]
"""Validates edited arguments or a replaced result, and returns the value to use. Raises CallError."""

_NO_ANSWERS: Final[Mapping[str, Json]] = {}

_logger = logging.getLogger("abeyance.hooks")


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksOutcome(Generic[E]):
    """The outcome of an event's hooks.

    `denied` is the reason of a denial, for the model; nothing is asked then. If hooks ask, `asked` holds
    their questions, and they run again with the answers. In both cases `event` is unchanged: the hooks'
    changes are dropped, including changes of the agent's state.
    """

    event: E
    asked: tuple[Asked, ...] = ()
    denied: str | None = None

    @property
    def cancelled(self) -> str | None:
        """The text of the hook that cancelled the call, or None."""
        match self.event:
            case BeforeToolCall(cancel_tool=str() as text):
                return text
            case _:
                return None


def processes(hooks: Sequence[object]) -> list[tuple[str, object]]:
    """Return each hook with the process name of its questions: its `name`, or the name of its class.

    The second hook of a name gets `.2`. An open question finds its hook if the hooks keep their order.
    """
    named: list[tuple[str, object]] = []
    for hook in hooks:
        declared = getattr(hook, "name", None)
        base = declared if isinstance(declared, str) and declared else type(hook).__name__
        process, number = base, 1
        while any(process == used for used, _ in named):
            number += 1
            process = f"{base}.{number}"
        named.append((process, hook))
    return named


async def run_hooks(
    hooks: Sequence[object],
    event: E,
    answers: Mapping[str, Json] = _NO_ANSWERS,
    *,
    check: Check | None = None,
) -> HooksOutcome[E]:
    """Run the hooks that listen to an event. The event itself is not changed.

    `answers` are the answers so far, by `process/name`. Nothing else identifies an answer, so a hook that
    asks about arguments must come after the hooks that edit them. `check` validates edited arguments
    before a tool call (`Tool.read`) and a replaced result after one (`Tool.checked_result`).
    """
    current = copy.deepcopy(event)
    asked: list[Asked] = []
    denied: str | None = None
    for process, hook in processes(hooks):
        if not listens(hook, type(event)):
            continue
        own, interrupts = copy.deepcopy(current), HookInterrupts(process, answers)
        if isinstance(own, BeforeToolCall):
            own.interrupts = interrupts
        fault = await _run_hook(hook, own, interrupts)
        if fault is None and interrupts.asked is not None:
            asked.append(interrupts.asked)
            continue
        if fault is None:
            try:
                current = _with_changes(current, own, check or _as_is)
                continue
            except CallError as error:
                fault = error.text
        _logger.warning("hook=%s event=%s | denied: %s", process, event.method, fault)
        denied = denied or truncate(f"denied by hook {process}: {fault}", MAX_ERROR_CHARS)
    if denied is not None:
        return HooksOutcome(event=event, denied=denied)
    if asked:
        return HooksOutcome(event=event, asked=tuple(asked))
    return HooksOutcome(event=current)


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """The result of a call after its hooks, and the agent's state."""

    result: dict[str, Json]
    memory: AgentState
    is_changed: bool = False


async def after_hooks(
    hooks: Sequence[object],
    result: Mapping[str, Json],
    *,
    tool: str,
    call_id: str,
    arguments: dict[str, Json],
    memory: AgentState,
    check: Check | None,
) -> After:
    """Run the after-hooks on the result of a call; `check` validates a replaced result."""
    status, value = tool_results.to_model_text(result)
    event = AfterToolCall(
        tool=tool,
        args=arguments,
        call_id=call_id,
        agent_state=memory,
        result=value,
        error=status != "success",
        cancelled=status in {"denied", "interrupted"},
    )
    outcome = await run_hooks(hooks, event, check=check)
    seen, memory = outcome.event, outcome.event.agent_state
    if outcome.denied is not None:
        said = tool_results.withheld(tool, result, outcome.denied)
    elif seen.error == event.error and canonical(seen.result) == canonical(value):
        return After(result=dict(result), memory=memory)
    elif seen.error:
        said = tool_results.error(str(seen.result), is_denied=seen.cancelled)
    else:
        said = tool_results.content(seen.result)
    return After(result={**said, **tool_results.marks(result)}, memory=memory, is_changed=True)


async def _run_hook(hook: object, own: HookEvent, interrupts: HookInterrupts) -> str | None:
    """Run one hook. Return the reason if it denies the call; None otherwise, even if it asks."""
    method = getattr(hook, own.method)
    if not inspect.iscoroutinefunction(method):
        # A plain method could not await an answer.
        return f"its {own.method} is not async"
    fault: str | None = None
    try:
        await call(method, own)
    except (Interrupt, CompositeInterrupt) as error:
        fault = (
            f"it raised {type(error).__name__}; before a call, a hook asks by `await "
            "event.interrupt(...)`, which returns the answer"
        )
    except Exception as error:
        _logger.warning("hook=%s | it raised", interrupts.process, exc_info=True)
        fault = described(error)
    except (Suspended, BaseExceptionGroup) as error:
        # A task group inside the hook raises a group of its tasks' errors.
        if suspended_by(error) is None:
            raise
        if interrupts.asked is None:
            fault = "it waits for the answer to a question that it did not ask by its event"
    return interrupts.close() or fault


def _as_is(value: Any) -> Any:
    return value


def _with_changes(current: E, own: E, check: Check) -> E:
    """Return the event with the valid changes of a hook. Raises CallError for an invalid one."""
    changed = copy.deepcopy(current)
    match changed, own:
        case BeforeToolCall(), BeforeToolCall():
            changed.args = _arguments(changed.args, own.args, check)
            changed.cancel_tool = _cancel(changed.cancel_tool, own)
        case AfterToolCall(), AfterToolCall():
            changed.result = _result(changed.result, own.result, check)
            if not isinstance(own.error, bool):
                raise CallError(f"it set error to {own.error!r}, which is neither True nor False")
            changed.error = own.error
        case _:
            raise TypeError(f"{type(own).__name__} is not a hook event")
    changed.agent_state = _state(own.agent_state)
    return changed


def _arguments(before: dict[str, Json], arguments: Any, check: Check) -> dict[str, Json]:
    if not isinstance(arguments, Mapping):
        raise CallError(
            f"it set args to a {type(arguments).__name__}, which is not a mapping of arguments"
        )
    if (fault := why_not_json(arguments)) is not None:
        raise CallError(f"it edited the arguments, and they are not JSON any more: {fault}")
    if canonical(arguments) == canonical(before):
        return before
    try:
        # The hook may still hold the original and change it.
        checked: dict[str, Json] = check(copy.deepcopy(dict(arguments)))
    except CallError as error:
        message = f"it edited the arguments, and they do not fit any more. {error.text}"
        raise CallError(message) from error
    return checked


def _result(before: Json, result: Any, check: Check) -> Json:
    if (fault := why_not_json(result)) is not None:
        raise CallError(f"it replaced the result by a value that is not JSON: {fault}")
    return before if canonical(before) == canonical(result) else check(copy.deepcopy(result))


def _cancel(before: Cancel, own: BeforeToolCall) -> Cancel:
    """Return the first cancellation: a later hook cannot allow a call that an earlier hook cancelled."""
    if before is not False:
        return before
    match own.cancel_tool:
        case False:
            return False
        case True | "":
            return f"cancelled by hook {own.interrupts.process}"
        case str() as text:
            return truncate(text, MAX_ERROR_CHARS)
        case other:
            raise CallError(f"it cancels with {other!r}: use True or a text")


def _state(state: object) -> AgentState:
    if not isinstance(state, AgentState):
        raise CallError(
            f"it put a {type(state).__name__} in place of the agent's state: set keys of it instead, "
            'such as event.agent_state["trusted"] = True'
        )
    try:
        state.changes()
    except (TypeError, ValueError) as error:
        raise CallError(str(error)) from error
    return state.fork()

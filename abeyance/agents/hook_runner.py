"""Running the hooks of an agent at one event.

All of them run, one after the other, each on what those before it made of the event; what they ask is
collected, to be asked together. Nothing fails open: a hook that raises, that leaves something behind
which cannot be used, or whose question goes astray denies what the event is about.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from abeyance.agents.hooks import (
    PLACES,
    AfterModelCall,
    AfterToolCall,
    BeforeModelCall,
    BeforeNode,
    BeforeToolCall,
    Cancel,
    HookEvent,
    HookInterrupts,
    listens,
)
from abeyance.agents.state import AgentState
from abeyance.agents.tool_errors import CallError, cut, described
from abeyance.authoring.callables import call
from abeyance.authoring.interrupts import CompositeInterrupt, Interrupt, Suspended, suspended_by
from abeyance.core.json import Json, canonical, why_not_json
from abeyance.core.outcome import Asked

E = TypeVar("E", bound=HookEvent)

Check: TypeAlias = Callable[[Any], Any]
"""Takes edited arguments, or a replaced result, and returns what is to be used. Raises CallError."""

_NO_ANSWERS: Final[Mapping[str, Json]] = {}
_logger = logging.getLogger("abeyance.hooks")


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksOutcome(Generic[E]):
    """What the hooks made of an event.

    `denied` is why it may not go on, for the model; nothing is asked then. `asked` has to be answered
    first, and the hooks run again with the answers. In both cases `event` is as it was before: what the
    hooks changed is dropped, in the agent's state too.
    """

    event: E
    asked: tuple[Asked, ...] = ()
    denied: str | None = None

    @property
    def cancelled(self) -> str | None:
        """The text with which a hook cancelled the call or the node, or None."""
        match self.event:
            case BeforeToolCall(cancel_tool=str() as text) | BeforeNode(cancel_node=str() as text):
                return text
            case _:
                return None


def processes(hooks: Sequence[object]) -> list[tuple[str, object]]:
    """The hooks with the names under which they ask: their `name`, or that of their class.

    Of two that have one name the second gets `.2`. So an open question finds its hook again as long as
    the order of such hooks stays.
    """
    found: list[tuple[str, object]] = []
    for hook in hooks:
        name = getattr(hook, "name", None)
        base = name if isinstance(name, str) and name else type(hook).__name__
        process, number = base, 1
        while any(process == taken for taken, _ in found):
            number += 1
            process = f"{base}.{number}"
        found.append((process, hook))
    return found


async def run_hooks(
    hooks: Sequence[object],
    event: E,
    answers: Mapping[str, Json] = _NO_ANSWERS,
    *,
    check: Check | None = None,
) -> HooksOutcome[E]:
    """Run the hooks that listen to an event, which itself stays as it is.

    `answers` are what people said so far, by `process/name`. An answer is found by that alone: a hook
    that asks about arguments stands behind the hooks that edit them. `check` is held against edited
    arguments before a tool call (`Tool.read`), and against a replaced result after one (`Tool.told`).
    """
    current = _fork(event)
    asked: list[Asked] = []
    denied: str | None = None
    for process, hook in processes(hooks):
        if not listens(hook, type(event)):
            continue
        mine = _fork(current)
        # One hook may ask the same before and after a call: these are two questions.
        mine.desk = HookInterrupts(f"{process}{PLACES.get(event.method, '')}", answers)
        fault = await _fault_of(hook, mine)
        if fault is None and mine.desk.asked is not None:
            asked.append(mine.desk.asked)
            continue
        if fault is None:
            try:
                current = _taken(current, mine, check)
                continue
            except CallError as error:
                fault = error.text
        _logger.warning("hook=%s event=%s | denied: %s", process, event.method, fault)
        denied = denied or cut(f"denied by hook {process}: {fault}")
    if denied is not None:
        return HooksOutcome(event=_fork(event), denied=denied)
    if asked:
        return HooksOutcome(event=_fork(event), asked=tuple(asked))
    return HooksOutcome(event=current)


async def _fault_of(hook: object, mine: HookEvent) -> str | None:
    """Run one hook. Why it denies, or None if it does not, or asks."""
    method = getattr(hook, mine.method)
    if not inspect.iscoroutinefunction(method):
        # It would not wait for an answer.
        return f"its {mine.method} is not async"
    fault: str | None = None
    try:
        await call(method, mine)
    except (Interrupt, CompositeInterrupt) as error:
        fault = (
            f"it raised {type(error).__name__}; a hook asks by `await event.interrupt(...)`, which "
            "returns the answer"
        )
    except Exception as error:
        _logger.warning("hook=%s | it raised", mine.desk.process, exc_info=True)
        fault = described(error)
    except (Suspended, BaseExceptionGroup) as error:
        # A task group of the hook's own ends with a group of what ended in it.
        if suspended_by(error) is None:
            raise
        if mine.desk.asked is None:
            fault = "it waits for the answer to a question that it did not ask by its event"
    return mine.desk.close() or fault


def _taken(current: E, mine: E, check: Check | None) -> E:
    """The event with what a hook may change of it. Raises CallError for what cannot be used."""
    after = _fork(current)
    match after, mine:
        case BeforeToolCall(), BeforeToolCall():
            after.args = _arguments(current, mine.args, check)
            after.cancel_tool = _cancel(after.cancel_tool, mine.cancel_tool, mine)
            after.agent_state = _state(mine.agent_state)
        case AfterToolCall(), AfterToolCall():
            after.result = _result(after.result, mine.result, check)
            if not isinstance(mine.error, bool):
                message = f"it set error to {mine.error!r}, which is neither True nor False"
                raise CallError(message)
            after.error = mine.error
            after.agent_state = _state(mine.agent_state)
        case BeforeModelCall(), BeforeModelCall():
            after.messages = _messages(mine.messages)
            after.agent_state = _state(mine.agent_state)
        case AfterModelCall(), AfterModelCall():
            after.agent_state = _state(mine.agent_state)
        case BeforeNode(), BeforeNode():
            after.cancel_node = _cancel(after.cancel_node, mine.cancel_node, mine)
        case _:
            message = f"{type(mine).__name__} is no event that hooks are run at"
            raise TypeError(message)
    return after


def _messages(messages: object) -> list[Any]:
    from pydantic_ai.messages import ModelRequest, ModelResponse

    if not isinstance(messages, list):
        message = f"it set messages to a {type(messages).__name__}, which is no list"
        raise CallError(message)
    for each in messages:
        if not isinstance(each, ModelRequest | ModelResponse):
            message = (
                f"it put a {type(each).__name__} among the messages, each of which is a ModelRequest "
                "or a ModelResponse of pydantic_ai.messages"
            )
            raise CallError(message)
    if not messages:
        message = "it left no message for the model"
        raise CallError(message)
    return list(messages)


def _arguments(current: HookEvent, edited: Any, check: Check | None) -> dict[str, Json]:
    assert isinstance(current, BeforeToolCall)  # noqa: S101 the caller has matched it
    if not isinstance(edited, Mapping):
        message = f"it set args to a {type(edited).__name__}, which is no mapping of arguments"
        raise CallError(message)
    if (fault := why_not_json(edited)) is not None:
        message = f"it edited the arguments, and they are no JSON any more: {fault}"
        raise CallError(message)
    if canonical(edited) == canonical(current.args):
        return current.args
    # A copy, because the hook may still hold what it edited.
    kept: dict[str, Json] = copy.deepcopy(dict(edited))
    if check is None:
        return kept
    try:
        checked: dict[str, Json] = check(kept)
    except CallError as error:
        message = f"it edited the arguments, and they do not fit any more. {error.text}"
        raise CallError(message) from error
    return checked


def _result(before: Json, result: Any, check: Check | None) -> Json:
    if (fault := why_not_json(result)) is not None:
        message = f"it replaced the result by what is no JSON: {fault}"
        raise CallError(message)
    if canonical(before) == canonical(result):
        return before
    kept = copy.deepcopy(result)
    return kept if check is None else check(kept)


def _cancel(before: Cancel, said: object, mine: HookEvent) -> Cancel:
    """What the first hook says holds, so a later one cannot let through what that one stopped."""
    if before is not False:
        return before
    match said:
        case False:
            return False
        case True | "":
            return f"cancelled by hook {mine.desk.process}"
        case str():
            return cut(said)
        case _:
            message = f"it cancels with {said!r}; that is True, or a text"
            raise CallError(message)


def _state(state: object) -> AgentState:
    if not isinstance(state, AgentState):
        message = (
            f"it put a {type(state).__name__} in place of the agent's state: set keys of it instead, "
            'such as event.agent_state["trusted"] = True'
        )
        raise CallError(message)
    try:
        state.changes()
    except (TypeError, ValueError) as error:
        raise CallError(str(error)) from error
    return state.fork()


def _fork(event: E) -> E:
    """A copy that a hook may do with as it likes. Messages are not copied: they may be many."""
    other = copy.copy(event)
    match other:
        case BeforeToolCall():
            other.args = copy.deepcopy(other.args)
            other.agent_state = other.agent_state.fork()
        case AfterToolCall():
            other.args = copy.deepcopy(other.args)
            other.result = copy.deepcopy(other.result)
            other.agent_state = other.agent_state.fork()
        case BeforeModelCall():
            other.messages = list(other.messages)
            other.agent_state = other.agent_state.fork()
        case AfterModelCall():
            other.agent_state = other.agent_state.fork()
        case BeforeNode():
            other.values = copy.deepcopy(dict(other.values))
        case _:
            pass
    return other

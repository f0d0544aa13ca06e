"""A question that is asked when it is awaited, and that is nobody's answer until then."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypeVar

from pydantic import ValidationError

from abeyance.authoring.declarations import DeclarationErrors, question_of
from abeyance.core.json import Json, why_not_json
from abeyance.core.outcome import Asked, Interrupted
from abeyance.duration import Duration
from abeyance.errors import Fatal
from abeyance.schemas.answers import as_asked
from abeyance.schemas.state_model import StateModel, ValuesError

T_co = TypeVar("T_co", covariant=True)


class AwaitableInterrupt(Coroutine[Any, Any, T_co]):
    """What `ctx.interrupt` returns: a coroutine that is neither true nor false.

    A coroutine is true, so `if ctx.interrupt(...):` would pass the gate that it was to be.
    """

    def __init__(self, told: str, ask: Callable[[], Coroutine[Any, Any, T_co]]) -> None:
        self._told = told
        self._ask = ask
        self._asking: Coroutine[Any, Any, T_co] | None = None

    def refuse(self) -> NoReturn:
        """Raise Fatal: it was not awaited."""
        message = (
            f"{self._told} is asked without `await`, so nobody has been asked: write `await "
            "ctx.interrupt(...)`, or in a plain function `raise Interrupt(...)`"
        )
        raise Fatal(message)

    def __bool__(self) -> bool:  # noqa: PLE0304 that it returns nothing is the point
        self.refuse()

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        """Go on, as the event loop makes it."""
        return self._begun().send(value)

    def throw(
        self,
        typ: Any,
        val: BaseException | object = None,
        tb: TracebackType | None = None,  # noqa: ARG002 a coroutine takes it, and it says nothing new
    ) -> Any:
        """Go on with an error, as the event loop makes it."""
        return self._begun().throw(val if isinstance(val, BaseException) else typ)

    def close(self) -> None:
        """Ask nobody any more."""
        self._begun().close()

    def _begun(self) -> Coroutine[Any, Any, T_co]:
        # Not before it is awaited: code may be left for another question with this one in its hands.
        if self._asking is None:
            self._asking = self._ask()
        return self._asking


OnTimeout: TypeAlias = str | Mapping[Literal["default"], Json]

_NO_STATE: Final = StateModel(None)


class Interrupt(Exception):
    """A question to a person.

    `name` tells it from the other questions of its visit. `prompt` is shown as it is. `reason` is JSON
    for the person, `payload` opaque data for their program. `response` says what an answer is: a
    pydantic model, a type, a Literal, or a JSON Schema; None takes any JSON value.
    `requested_capability` is what the answering principal must hold. `timeout` is relative, `deadline` a
    moment with a time zone; without both it waits for ever. `on_timeout` is `halt`, `goto:<node>` or
    `{"default": answer}`. `process` names the part of the visit that asks, if it has parts. `state` is
    what the visit keeps for itself; nobody is shown it.
    """

    def __init__(
        self,
        name: str,
        *,
        prompt: str | None = None,
        reason: Json = None,
        payload: Json = None,
        response: Any = None,
        requested_capability: str | None = None,
        timeout: Duration | None = None,
        deadline: datetime | None = None,
        on_timeout: OnTimeout = "halt",
        process: str | None = None,
        state: Json = None,
    ) -> None:
        super().__init__(f"the interrupt {name!r} waits for a person")
        self.name = name
        self.prompt = prompt
        self.reason = reason
        self.payload = payload
        self.response = response
        self.requested_capability = requested_capability
        self.timeout = timeout
        self.deadline = deadline
        self.on_timeout = on_timeout
        self.process = process
        self.state = state

    @property
    def key(self) -> str:
        """What tells it from the other questions of its visit."""
        return self.name if self.process is None else f"{self.process}/{self.name}"


class CompositeInterrupt(Exception):
    """Questions of several processes that one visit runs, bundled under it.

    Every answer re-enters the visit, with what is known; the others stay open. `state` is what the
    visit keeps for itself, `reason` what it shows of itself as the parent of its questions. One that
    stands in another gives its questions to that.
    """

    def __init__(
        self,
        interrupts: Sequence[Interrupt | CompositeInterrupt],
        *,
        state: Json = None,
        reason: Json = None,
    ) -> None:
        super().__init__("interrupts of several processes wait for people")
        self.interrupts: tuple[Interrupt, ...] = tuple(
            leaf
            for each in interrupts
            for leaf in (each.interrupts if isinstance(each, CompositeInterrupt) else (each,))
        )
        self.state = state
        self.reason = reason


class Suspended(BaseException):
    """Ends a visit's code because it has to wait: no `except Exception` of an author's may stop it."""

    def __init__(
        self, asked: Sequence[Asked], state: Json = None, *, composite: bool = False
    ) -> None:
        self.asked = tuple(asked)
        self.state = state
        self.composite = composite
        super().__init__("the visit waits for a person")


def lowered(interrupt: Interrupt) -> Asked:
    """The question as the core knows it. Raises Fatal with all that is wrong with it."""
    if not isinstance(interrupt, Interrupt):
        message = f"{interrupt!r} is no Interrupt: write Interrupt('name', prompt=...)"
        raise Fatal(message)
    told = f"the interrupt {interrupt.name!r}"
    for name in (interrupt.name, "-" if interrupt.process is None else interrupt.process):
        if not isinstance(name, str) or not name or "/" in name or why_not_json(name):
            message = (
                f"an interrupt or its process is named {name!r}; a name is a text that is not empty and "
                "has no '/'"
            )
            raise Fatal(message)
    intake = DeclarationErrors(_NO_STATE)
    question = question_of(
        interrupt.name,
        told,
        intake,
        _NO_STATE,
        prompt=interrupt.name if interrupt.prompt is None else str(interrupt.prompt),
        reason=interrupt.reason,
        payload=interrupt.payload,
        response=interrupt.response,
        requested_capability=interrupt.requested_capability,
        timeout=interrupt.timeout,
        on_timeout=interrupt.on_timeout,
    )
    faults = [*intake.faults, *_time_faults(interrupt, told)]
    if question.timeout is not None and not 0 < question.timeout < math.inf:
        faults.append(
            f"{told} has a timeout of {question.timeout:g} s; it must be above zero, and finite"
        )
    if faults:
        raise Fatal("; ".join(faults))
    deadline = None if interrupt.deadline is None else interrupt.deadline.astimezone(UTC)
    return Asked(question=question, process=interrupt.process, deadline=deadline)


def typed_answer(asked: Interrupt, answer: Json) -> Any:
    """An answer as the type that its question named. Raises ValuesError if it does not fit that."""
    try:
        return as_asked(asked.response, answer)
    except ValidationError as error:
        message = f"the answer to {asked.name!r} does not fit its type: {error}"
        raise ValuesError(message) from error


def _time_faults(interrupt: Interrupt, told: str) -> Iterator[str]:
    deadline = interrupt.deadline
    if deadline is not None:
        if not isinstance(deadline, datetime) or deadline.tzinfo is None:
            yield f"{told}: deadline={deadline!r} is no datetime with a time zone"
        if interrupt.timeout is not None:
            yield f"{told} has both a timeout and a deadline: give one"
    elif interrupt.timeout is None and interrupt.on_timeout != "halt":
        yield f"{told} says on_timeout, but has no timeout"


def suspended_by(error: BaseException) -> Interrupted | None:
    """The outcome that an exception means, or None if it is not about asking people."""
    match error:
        case Suspended(asked=asked, state=state, composite=composite):
            return Interrupted(interrupts=asked, user_state=state, composite=composite)
        case Interrupt(state=state):
            return Interrupted(interrupts=(lowered(error),), user_state=state)
        case CompositeInterrupt(interrupts=interrupts, state=state, reason=reason):
            return Interrupted(
                interrupts=tuple(lowered(each) for each in interrupts),
                user_state=state,
                composite=True,
                reason=reason,
            )
        case BaseExceptionGroup(exceptions=inside):
            # A task group ends with all that ended in it.
            found = [suspended_by(each) for each in inside]
            known = [each for each in found if each is not None]
            if len(known) < len(found):
                return None
            return Interrupted(
                interrupts=tuple(asked for each in known for asked in each.interrupts),
                user_state=next(
                    (each.user_state for each in known if each.user_state is not None), None
                ),
                composite=True,
            )
        case _:
            return None

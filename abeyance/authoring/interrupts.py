"""Interrupts: questions that the code of a node asks a person."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, Unpack

from pydantic import ValidationError

from abeyance.authoring.declarations import DeclarationErrors, question_of
from abeyance.authoring.terms import TermsOptions, approval_fault, terms_of, time_faults
from abeyance.core.json import Json, why_not_json
from abeyance.core.outcome import Asked, Interrupted
from abeyance.duration import Duration
from abeyance.errors import Fatal
from abeyance.schemas import answer_types
from abeyance.schemas.faults import at_pointer

T_co = TypeVar("T_co", covariant=True)


class GuardedCoroutine(Coroutine[Any, Any, T_co]):
    """The coroutine that a method of `Context` returns; it raises Fatal if it is used without `await`.

    `begin` makes the coroutine that does the work. `fault` is the message for the author. A plain
    coroutine is truthy, so `if ctx.interrupt(...):` would pass without an answer.
    """

    def __init__(self, fault: str, begin: Callable[[], Coroutine[Any, Any, T_co]]) -> None:
        self._fault = fault
        self._begin = begin
        self._begun: Coroutine[Any, Any, T_co] | None = None

    def refuse(self) -> NoReturn:
        """Raise Fatal, which says that `await` is missing."""
        raise Fatal(self._fault)

    def __bool__(self) -> bool:  # noqa: PLE0304 it always raises
        self.refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "cr_", "gi_", "ag_")):
            # Python and its event loops ask for these.
            raise AttributeError(name)
        self.refuse()

    def __getitem__(self, key: object) -> Any:
        self.refuse()

    def __iter__(self) -> Iterator[Any]:
        self.refuse()

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._coroutine().__await__()

    def send(self, value: Any) -> Any:
        """Resume, called by the event loop."""
        return self._coroutine().send(value)

    def throw(
        self,
        typ: Any,
        val: BaseException | object = None,
        tb: TracebackType | None = None,  # noqa: ARG002 part of a coroutine's interface
    ) -> Any:
        """Resume with an error, called by the event loop."""
        return self._coroutine().throw(val if isinstance(val, BaseException) else typ)

    def close(self) -> None:
        """Close the coroutine."""
        self._coroutine().close()

    def _coroutine(self) -> Coroutine[Any, Any, T_co]:
        # Created only when it is awaited, because the visit may end at another question before that.
        if self._begun is None:
            self._begun = self._begin()
        return self._begun


OnTimeout: TypeAlias = str | Mapping[Literal["default"], Json]


class QuestionOptions(TermsOptions, total=False):
    """The options of a question, as `Interrupt` describes them. All are optional."""

    prompt: str | None
    reason: Json
    payload: Json
    requested_capability: str | None
    timeout: Duration | None
    deadline: datetime | None
    on_timeout: OnTimeout


class Interrupt(Exception):
    """A question to a person.

    `name` is unique among the interrupts of a visit. `prompt` is shown as written, `reason` is JSON for
    the approver, and `payload` is opaque data for the approver's program. `response` is the type of the
    answer: a pydantic model, a type, a Literal, or a JSON Schema; None accepts any JSON value.
    `requested_capability` is the capability that the approver must have. `timeout` is relative,
    `deadline` a datetime with a time zone; without both the interrupt waits forever. `on_timeout` is
    `halt`, `goto:<node>` or `{"default": answer}`. `process` names the part of the visit that asks, if
    it has several. `state` is private to the visit, which reads it as `ctx.saved_state`. `terms` are
    those of `TermsOptions`: `assignees`, `quorum`, `remind` and so on.
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
        **terms: Unpack[TermsOptions],
    ) -> None:
        super().__init__(f"the interrupt {name!r} waits for an answer")
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
        self.terms = terms

    @property
    def key(self) -> str:
        """The key of the interrupt in its visit: `name`, or `process/name`."""
        return self.name if self.process is None else f"{self.process}/{self.name}"


class CompositeInterrupt(Exception):
    """Interrupts of several processes that run in one visit.

    Each answer re-enters the visit; the other interrupts stay open. `state` is private to the visit,
    `reason` is shown with each interrupt. A nested CompositeInterrupt is flattened.
    """

    def __init__(
        self,
        interrupts: Sequence[Interrupt | CompositeInterrupt],
        *,
        state: Json = None,
        reason: Json = None,
    ) -> None:
        super().__init__("interrupts of several processes wait for answers")
        self.interrupts: tuple[Interrupt, ...] = tuple(
            leaf
            for interrupt in interrupts
            for leaf in (
                interrupt.interrupts if isinstance(interrupt, CompositeInterrupt) else (interrupt,)
            )
        )
        self.state = state
        self.reason = reason


class Suspended(BaseException):
    """Ends a visit that waits for answers. No `except Exception` catches it."""

    def __init__(
        self, asked: Sequence[Asked], state: Json = None, *, composite: bool = False
    ) -> None:
        self.asked = tuple(asked)
        self.state = state
        self.composite = composite
        super().__init__("the visit waits for an answer")


def lowered(interrupt: Interrupt) -> Asked:
    """Return the interrupt as the core represents it. Raise Fatal with all its faults."""
    if not isinstance(interrupt, Interrupt):
        raise Fatal(f"{interrupt!r} is not an Interrupt: write Interrupt('name', prompt=...)")
    label = f"the interrupt {interrupt.name!r}"
    for name in (interrupt.name, "-" if interrupt.process is None else interrupt.process):
        if not isinstance(name, str) or not name or "/" in name or why_not_json(name):
            raise Fatal(
                f"the name {name!r} of an interrupt or its process is invalid: use a string that is not "
                "empty and has no '/'"
            )
    errors = DeclarationErrors()
    question = question_of(
        interrupt.name,
        label,
        errors,
        prompt=interrupt.name if interrupt.prompt is None else interrupt.prompt,
        reason=interrupt.reason,
        payload=interrupt.payload,
        response=interrupt.response,
        requested_capability=interrupt.requested_capability,
        timeout=interrupt.timeout,
        on_timeout=interrupt.on_timeout,
        terms=terms_of(interrupt.terms, label, errors),
    )
    has_deadline = question.timeout is not None or interrupt.deadline is not None
    faults = [
        *errors.faults,
        *_time_faults(interrupt, label),
        *time_faults(label, question, has_deadline=has_deadline),
    ]
    if (fault := approval_fault(question)) is not None:
        faults.append(f"{label} {fault}")
    if faults:
        raise Fatal("; ".join(faults))
    question = replace(question, response_type=answer_types.remember(interrupt.response))
    deadline = None if interrupt.deadline is None else interrupt.deadline.astimezone(UTC)
    return Asked(question=question, process=interrupt.process, deadline=deadline)


class Misread(Exception):
    """An accepted answer cannot be read as its type any more; the text says why.

    The type has become stricter since the answer was accepted: by a deploy, or because time has passed.
    """


def typed_answer(asked: Interrupt, answer: Json) -> Any:
    """Return an answer as the type `response`. Raise Misread."""
    try:
        return answer_types.read_answer(asked.response, answer)
    except ValidationError as error:
        faults = at_pointer(error, answer)
        texts = (f"{each['pointer']}: {each['message']}".removeprefix(": ") for each in faults)
        raise Misread("; ".join(texts)) from error


def _time_faults(interrupt: Interrupt, label: str) -> Iterator[str]:
    deadline = interrupt.deadline
    if deadline is not None:
        if not isinstance(deadline, datetime) or deadline.tzinfo is None:
            yield f"{label}: deadline={deadline!r} is invalid: use a datetime with a time zone"
        if interrupt.timeout is not None:
            yield f"{label} has both a timeout and a deadline: remove one"
    elif interrupt.timeout is None and interrupt.on_timeout != "halt":
        yield f"{label} has on_timeout but no timeout: add a timeout"


def suspended_by(error: BaseException) -> Interrupted | None:
    """Return the outcome of an exception that asks questions; None for any other exception."""
    match error:
        case Suspended(asked=asked, state=state, composite=composite):
            return Interrupted(interrupts=asked, user_state=state, composite=composite)
        case Interrupt(state=state):
            return Interrupted(interrupts=(lowered(error),), user_state=state)
        case CompositeInterrupt(interrupts=interrupts, state=state, reason=reason):
            return Interrupted(
                interrupts=tuple(map(lowered, interrupts)),
                user_state=state,
                composite=True,
                reason=reason,
            )
        case BaseExceptionGroup(exceptions=inside):
            # A task group raises the errors of all its tasks together.
            outcomes = [suspended_by(error) for error in inside]
            interrupted = [outcome for outcome in outcomes if outcome is not None]
            if len(interrupted) < len(outcomes):
                return None
            return Interrupted(
                interrupts=tuple(asked for outcome in interrupted for asked in outcome.interrupts),
                user_state=next(
                    (part.user_state for part in interrupted if part.user_state is not None), None
                ),
                composite=True,
            )
        case _:
            return None

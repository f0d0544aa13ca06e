"""Declaring a function that a model may call: what it is told of it, who is asked first, and its limits.

What is wrong with a declaration is told at once, all of it.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args, overload

from abeyance.agents.approvals import Approve, OnApprovalTimeout, declared_question
from abeyance.agents.tool import OnUnknown, Tool, ToolContext
from abeyance.agents.tool_errors import (
    ArgumentsError,
    CallError,
    ResultError,
    ToolDeclarationError,
    ToolFailed,
)
from abeyance.agents.tool_schema import Arguments, SchemaArguments, arguments_of
from abeyance.authoring.callables import can_take
from abeyance.authoring.declarations import DeclarationErrors
from abeyance.core.json import Json
from abeyance.duration import Duration
from abeyance.schemas.json_schema import schema_of
from abeyance.schemas.state_model import StateModel

__all__ = [
    "ArgumentsError",
    "CallError",
    "ResultError",
    "Tool",
    "ToolContext",
    "ToolDeclarationError",
    "ToolFailed",
    "tool",
]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_STATE: Final = StateModel(None)
_MOST_RESULT: Final = 1_000_000
"""In bytes: a result is sent back with the outcome of its call."""


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    function: None = None,
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    schema: Mapping[str, Json] | None = ...,
    approve: Approve = ...,
    timeout: Duration | None = ...,
    retries: int = ...,
    heartbeat: Duration = ...,
    on_unknown: OnUnknown = ...,
    requested_capability: str | None = ...,
    asks: str | Sequence[str] = ...,
    approval_timeout: Duration | None = ...,
    on_timeout: OnApprovalTimeout = ...,
    prompt: str | None = ...,
    max_result: int = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, Json] | None = None,
    approve: Approve = False,
    timeout: Duration | None = None,
    retries: int = 0,
    heartbeat: Duration = 5.0,
    on_unknown: OnUnknown = "ask",
    requested_capability: str | None = None,
    asks: str | Sequence[str] = (),
    approval_timeout: Duration | None = None,
    on_timeout: OnApprovalTimeout = "halt",
    prompt: str | None = None,
    max_result: int = 100_000,
) -> Any:
    """Declare a function to be a tool: a coroutine function, or a plain one, which runs in a thread.

    Its parameters, each with a type, are what the model may send; `Annotated[str, Field(description=)]`
    tells it more. A parameter of the type ToolContext, or a first one called `ctx` without a type, gets
    the context. What the function returns is JSON (or pydantic models and the like, which become JSON).

    `name` and `description` are the function's name and docstring unless given. With a `schema`, a JSON
    Schema of an object, the function takes the context and one mapping of all arguments in place of
    parameters. `timeout` bounds one attempt. `retries` counts the attempts after the first; an approved
    call has one attempt. `heartbeat` is how long a worker may be silent before the call is given to
    another. `max_result` is in bytes.

    `approve` True: a person has to approve each call before it is run; a predicate of the arguments (a
    mapping, as JSON) says for which. Who approves needs `requested_capability`; `prompt` is what they
    are asked, with `{argument}` filled in. Without an answer within `approval_timeout`, the run halts
    (`on_timeout="halt"`), the call is rejected (`"reject"`), or a default answer holds
    (`{"default": {"approved": False}}`). `on_unknown` says what happens when the worker is lost in the
    middle of an approved call: a person is asked what became of it, it is run again (`"retry"`), or it
    counts as failed (`"fail"`).

    `asks` names further capabilities that its code asks for (`ctx.interrupt(...)`), by name or by a
    pattern. A question that names none asks for `requested_capability`, else for the first of these.

    Raises ToolDeclarationError with everything that is wrong.
    """

    def declare(function: Callable[..., Any]) -> Tool:
        if not callable(function):
            message = f"{function!r} is no function: write @tool(name={function!r})"
            raise TypeError(message)
        intake = DeclarationErrors(_NO_STATE)
        faults = intake.faults
        id_ = getattr(function, "__name__", "") if name is None else name
        if not isinstance(id_, str) or not _NAME.fullmatch(id_):
            faults.append(
                f"its name is {id_!r}; models take names of 1 to 64 letters, digits, '_' and '-': write "
                "@tool(name=...)"
            )
        said = inspect.getdoc(function) if description is None else description
        arguments = _arguments(function, schema, faults)
        faults.extend(_policy_faults(approve, on_unknown, retries, max_result))
        if approve is False:
            idle = {
                "requested_capability": requested_capability,
                "approval_timeout": approval_timeout,
                "prompt": prompt,
            }
            faults.extend(_idle_faults(idle))
        question = declared_question(
            "its approval",
            intake,
            {"type": "object"} if arguments is None else arguments.editable,
            requested_capability=requested_capability,
            timeout=approval_timeout,
            on_timeout=on_timeout,
        )
        bound = intake.seconds(timeout, "timeout=")
        pulse = intake.seconds(heartbeat, "heartbeat=")
        lengths = {"timeout": bound, "heartbeat": pulse, "approval_timeout": question.timeout}
        faults.extend(_length_faults(lengths))
        if faults or arguments is None:
            raise ToolDeclarationError(str(id_), faults)
        return Tool(
            name=id_,
            description=said or "",
            function=function,
            arguments=arguments,
            approve=approve,
            prompt=prompt,
            question=question,
            asks=intake.capabilities(asks, f"the tool {id_!r}"),
            timeout=bound,
            retries=retries,
            heartbeat=pulse or 0.0,
            on_unknown=on_unknown,
            max_result=max_result,
        )

    return declare if function is None else declare(function)


def _arguments(
    function: Callable[..., Any], schema: Mapping[str, Json] | None, faults: list[str]
) -> Arguments | None:
    if schema is None:
        return arguments_of(function, faults)
    before = len(faults)
    if not can_take(function, 2):
        faults.append("it has a schema=, so it has to take (context, arguments)")
    try:
        found = schema_of(schema)
    except ValueError as error:
        faults.append(f"schema=: {error}")
        return None
    if found.get("type") != "object":
        faults.append(f"schema= is of {found.get('type')!r}; arguments are an object")
    return None if len(faults) > before else SchemaArguments(schema=found)


def _policy_faults(
    approve: object, on_unknown: object, retries: object, max_result: object
) -> Iterator[str]:
    if not isinstance(approve, bool) and not (callable(approve) and can_take(approve, 1)):
        yield f"approve={approve!r} is neither True nor False nor a function of (arguments)"
    if on_unknown not in get_args(OnUnknown):
        yield f"on_unknown={on_unknown!r} is neither 'ask' nor 'retry' nor 'fail'"
    if not _is_count(retries, 0):
        yield f"retries={retries!r} is no number of attempts after the first, such as 0 or 3"
    if not _is_count(max_result, 1, _MOST_RESULT):
        yield f"max_result={max_result!r} is no number of bytes from 1 to {_MOST_RESULT}"


def _idle_faults(idle: Mapping[str, object]) -> Iterator[str]:
    for option, given in idle.items():
        if given is not None:
            yield (
                f"{option}= is of the approval, and nobody is asked: say approve=True, or a predicate"
            )


def _length_faults(lengths: Mapping[str, float | None]) -> Iterator[str]:
    for option, length in lengths.items():
        if length is not None and not 0 < length < math.inf:
            yield f"{option}= is {length:g} s; it has to be above zero"


def _is_count(value: object, least: int, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

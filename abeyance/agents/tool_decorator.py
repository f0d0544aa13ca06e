"""`@tool`: declaring a function that a model may call, with all errors of a declaration at once."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Unpack, get_args, overload

from abeyance.agents.approvals import (
    Approve,
    OnApprovalTimeout,
    Remember,
    declared_question,
    remembered,
    remembered_of_tool,
)
from abeyance.agents.tool import OnUnknown, Preview, Tool
from abeyance.agents.tool_errors import ToolDeclarationError
from abeyance.agents.tool_schema import Arguments, SchemaArguments, arguments_of
from abeyance.authoring.callables import can_take
from abeyance.authoring.declarations import DeclarationErrors
from abeyance.authoring.retries import (
    ANY_ERROR,
    DEFAULT_BACKOFF,
    Backoff,
    RetryOn,
    exceptions,
    retry_policy,
)
from abeyance.authoring.terms import TermsOptions, terms_of, time_faults
from abeyance.core.json import Json, paths
from abeyance.core.terms import MAX_RESULT, Decision
from abeyance.duration import Duration
from abeyance.schemas.json_schema import schema_of

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_RESULT_BYTES: Final = 1_000_000
"""The largest `max_result`: a result is reported with the outcome of its activity."""


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    function: None = None,
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    schema: Mapping[str, Json] | SchemaArguments | None = ...,
    approve: Approve = ...,
    timeout: Duration | None = ...,
    retries: int | None = ...,
    backoff: Backoff = ...,
    retry_for: Duration | None = ...,
    retry_on: RetryOn = ...,
    heartbeat: Duration = ...,
    on_unknown: OnUnknown = ...,
    requested_capability: str | None = ...,
    asks: str | Sequence[str] = ...,
    approval_timeout: Duration | None = ...,
    on_timeout: OnApprovalTimeout = ...,
    prompt: str | None = ...,
    decisions: Sequence[Decision] | None = ...,
    preview: Callable[..., Any] | None = ...,
    remember: Remember | None = ...,
    max_result: int = ...,
    **terms: Unpack[TermsOptions],
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, Json] | SchemaArguments | None = None,
    approve: Approve = False,
    timeout: Duration | None = None,
    retries: int | None = None,
    backoff: Backoff = DEFAULT_BACKOFF,
    retry_for: Duration | None = None,
    retry_on: RetryOn = ANY_ERROR,
    heartbeat: Duration = 5.0,
    on_unknown: OnUnknown = "ask",
    requested_capability: str | None = None,
    asks: str | Sequence[str] = (),
    approval_timeout: Duration | None = None,
    on_timeout: OnApprovalTimeout = "halt",
    prompt: str | None = None,
    decisions: Sequence[Decision] | None = None,
    preview: Callable[..., Any] | None = None,
    remember: Remember | None = None,
    max_result: int = MAX_RESULT,
    **terms: Unpack[TermsOptions],
) -> Any:
    """Declare a function to be a tool: a coroutine function, or a plain one, which runs in a thread.

    Its typed parameters are the arguments that the model may send; `Annotated[str, Field(description=)]`
    describes one. A parameter of the type ToolContext, or an untyped first one named `ctx`, gets the
    context. The function returns JSON, or pydantic models and the like, which are encoded as JSON.

    `name` and `description` default to the function's name and docstring. With a `schema`, a JSON
    Schema of an object, the function takes the context and one mapping of all arguments. `timeout`
    bounds one attempt. `retries` counts the attempts after the first; the default is 0, or unlimited with
    `retry_for`. `retries`, `retry_for`, `backoff` and `retry_on` are as for a node; an approved call has
    one attempt. `heartbeat` is how long a worker may be silent before another worker retries the call.
    `max_result` is in bytes, and also limits a result that an approver gives in place of the call.

    `approve=True` requires an approval of each call before it runs; a predicate of the arguments (a
    mapping, as JSON) selects the calls. The approver needs `requested_capability`; `prompt` is the text
    of the question, with `{argument}` filled in. Without an answer within `approval_timeout`, the run
    halts (`on_timeout="halt"`), the call is rejected (`"reject"`), or a default answer applies
    (`{"default": {"approved": False}}`). `on_unknown` applies when the worker is lost during an approved
    call: an operator is asked about its outcome (`"ask"`), it runs again (`"retry"`), or it fails
    (`"fail"`). `terms` are those of `TermsOptions`, for the approval: `assignees`, `quorum` and so on.

    `decisions` lists the decisions that the answer may contain, by default all: `"approve"`, `"edit"` the
    arguments, `"reject"`, and `"respond"` with a result that the model reads in place of the call.

    `preview` is an async function of the call's arguments (of all, or of some by name) and a ToolContext
    that describes what the call would do, without doing it: `{"summary": ..., "diff"?: ...,
    "table"?: [...], "cost"?: ...}`. The preview is shown with the approval, and made again right before
    the call: if it then differs or fails, or if the arguments were edited, the approver is asked again.

    `remember` lets approvers remember their yes: nobody is asked about the calls that it covers.

    `asks` lists further capabilities that the code requests (`ctx.interrupt(...)`), by name or pattern. A
    question without a capability requests `requested_capability`, else the first of `asks`.

    Raises ToolDeclarationError with all errors.
    """

    def declare(function: Callable[..., Any]) -> Tool:
        if not callable(function):
            raise TypeError(f"{function!r} is not a function: write @tool(name={function!r})")
        errors = DeclarationErrors()
        faults = errors.faults
        tool_name = getattr(function, "__name__", "") if name is None else name
        if not isinstance(tool_name, str) or not _NAME.fullmatch(tool_name):
            faults.append(
                f"its name {tool_name!r} is invalid: write @tool(name=...) with 1 to 64 letters, digits, "
                "'_' and '-'"
            )
        doc = inspect.getdoc(function) if description is None else description
        arguments = _arguments(function, schema, faults)
        faults.extend(_policy_faults(approve, on_unknown, max_result))
        retry = retry_policy(
            errors.note,
            "its attempts",
            retries=retries,
            backoff=backoff,
            retry_for=retry_for,
            default=0,
        )
        retried = exceptions(errors.note, "its attempts", retry_on)
        if approve is False:
            unused = {
                "requested_capability": requested_capability,
                "approval_timeout": approval_timeout,
                "prompt": prompt,
                "decisions": decisions,
                "preview": preview,
                "remember": remember,
                **terms,
            }
            faults.extend(
                f"{option}= has no effect without an approval: set approve=True, or a predicate"
                for option, value in unused.items()
                if value is not None
            )
        allowed = None
        if arguments is not None:
            allowed = remembered(remember, arguments.schema, errors)
        question = declared_question(
            errors,
            arguments,
            is_rememberable=allowed is not None,
            requested_capability=requested_capability,
            timeout=approval_timeout,
            on_timeout=on_timeout,
            terms=terms_of(
                terms, "its approval", errors, decisions=decisions, max_result=max_result
            ),
        )
        if arguments is not None:
            faults.extend(_prompt_faults(prompt, arguments.schema))
        previewing = _preview(preview, arguments, schema, faults)
        timeout_seconds = _duration(timeout, "timeout=", errors)
        heartbeat_seconds = _duration(heartbeat, "heartbeat=", errors)
        has_deadline = question.timeout is not None
        faults.extend(time_faults("its approval", question, has_deadline=has_deadline))
        capabilities = errors.capabilities(asks, "its code")
        about = {"tool": tool_name, "prompt": prompt, "on_unknown": on_unknown}
        allowed = remembered_of_tool(allowed, question, errors, **about)
        if faults or arguments is None:
            raise ToolDeclarationError(str(tool_name), faults)
        return Tool(
            name=tool_name,
            description=doc or "",
            function=function,
            arguments=arguments,
            approve=approve,
            prompt=prompt,
            question=question,
            asks=capabilities,
            timeout=timeout_seconds,
            retry=retry,
            retry_on=retried,
            heartbeat=heartbeat_seconds or 0.0,
            on_unknown=on_unknown,
            max_result=max_result,
            preview=previewing,
            remember=allowed,
        )

    return declare if function is None else declare(function)


def _arguments(
    function: Callable[..., Any],
    schema: Mapping[str, Json] | SchemaArguments | None,
    faults: list[str],
) -> Arguments | None:
    if schema is None:
        return arguments_of(function, faults)
    given = schema if isinstance(schema, SchemaArguments) else SchemaArguments(schema=schema)
    before = len(faults)
    if not can_take(function, 2):
        faults.append("it has a schema=, so it must take (context, arguments)")
    try:
        checked = schema_of(given.schema)
    except ValueError as error:
        faults.append(f"schema=: {error}")
        return None
    if checked.get("type") != "object":
        faults.append(f"schema= has the type {checked.get('type')!r}: use 'object'")
    return None if len(faults) > before else replace(given, schema=checked)


def _preview(
    function: Callable[..., Any] | None,
    arguments: Arguments | None,
    schema: Mapping[str, Json] | SchemaArguments | None,
    faults: list[str],
) -> Preview | None:
    if function is None:
        return None
    if not inspect.iscoroutinefunction(function):
        faults.append(f"preview={function!r} is invalid: use an async function of the arguments")
        return None
    of_preview: list[str] = []
    own = _arguments(function, schema, of_preview)
    faults.extend(f"preview=: {fault}" for fault in of_preview)
    if own is None or arguments is None:
        return None
    unknown = (
        own.schema.get("properties", {}).keys() - arguments.schema.get("properties", {}).keys()
    )
    faults.extend(
        f"preview= takes {name!r}, which is not an argument of the tool: remove it"
        for name in sorted(unknown)
    )
    return Preview(function=function, arguments=own)


def _prompt_faults(prompt: str | None, schema: Json) -> Iterator[str]:
    if schema.get("additionalProperties") is not False:
        return
    declared = schema.get("properties", {})
    listed = ", ".join(map(repr, declared)) or "none"
    for path in dict.fromkeys(paths(prompt)):
        if path.partition(".")[0] not in declared:
            yield f"prompt= shows {{{path}}}, which is not an argument of the tool; there are {listed}"


def _policy_faults(approve: object, on_unknown: object, max_result: object) -> Iterator[str]:
    if not isinstance(approve, bool) and not (callable(approve) and can_take(approve, 1)):
        yield f"approve={approve!r} is invalid: use True, False or a function of (arguments)"
    if on_unknown not in get_args(OnUnknown):
        yield f"on_unknown={on_unknown!r} is invalid: use 'ask', 'retry' or 'fail'"
    if type(max_result) is not int or not 1 <= max_result <= _MAX_RESULT_BYTES:
        yield f"max_result={max_result!r} is invalid: use 1 to {_MAX_RESULT_BYTES} bytes"


def _duration(value: object, label: str, errors: DeclarationErrors) -> float | None:
    length = errors.seconds(value, label)
    if length is not None and not 0 < length < math.inf:
        errors.note(f"{label}{length:g} s is invalid: use a duration above zero")
    return length

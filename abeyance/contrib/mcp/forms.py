"""MCP: the abilities of a client, questions as elicitations, and runs as results and tasks. Pure.

A question is a form if its schema is flat: texts, numbers, booleans, and choices. A form expresses less
than a schema, and the rest is checked when the answer arrives. Any other question, and one that the
caller may not answer, is shown as the address of its page in the inbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Final, Self

import mcp_types as protocol
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from abeyance import views
from abeyance.contrib.talk import segments
from abeyance.core.json import Json
from abeyance.core.ledger import Receipt
from abeyance.core.state import Status
from abeyance.core.text import visible
from abeyance.schemas.json_schema import without_null
from abeyance.util import inbox_url

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension by which a call becomes a task."""
RUN_ID: Final = "abeyance/run_id"
"""The key of the run's id, in `_meta` of a result."""
KEY: Final = "abeyance/idempotency-key"
"""The key in `_meta` of a call that makes its repetition safe."""

_POLL_MS: Final = 1_000
_POLL_ASKED_MS: Final = 2_000

_ANSWER: Final = "answer"
"""The field of a form for an answer that is not an object."""
_SHARED: Final = ("title", "description", "default")
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("minLength", "maxLength"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "boolean": (),
    "array": ("minItems", "maxItems"),
}
"""The constraints of a field that a form can express, by its type. All others are checked when the answer
arrives.
"""
_FORMATS: Final = frozenset({"date", "date-time", "email", "uri"})
_BRANCHES: Final = ("anyOf", "oneOf", "allOf", "patternProperties")


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The abilities of a client. `rounds`: it repeats a call with answers (`InputRequiredResult`);
    `tasks`: it follows a task; `form` and `url`: it shows these to its user.
    """

    rounds: bool = False
    tasks: bool = False
    form: bool = False
    url: bool = False

    @classmethod
    def of(cls, version: str, capabilities: protocol.ClientCapabilities | None) -> Self:
        """Return the abilities that a client declares with a request. A client of 2025 has none of them
        here.
        """
        if version not in MODERN_PROTOCOL_VERSIONS or capabilities is None:
            return cls()
        shows = capabilities.elicitation
        return cls(
            rounds=True,
            tasks=TASKS in (capabilities.extensions or {}),
            # The capability once had no modes, and only forms existed.
            form=shows is not None and (shows.form is not None or shows.url is None),
            url=shows is not None and shows.url is not None,
        )


def request_of(
    question: views.InterruptView, abilities: Abilities, base: str, *, why: str | None = None
) -> protocol.ElicitRequest | None:
    """Return the request by which a client asks its user a question; None if it cannot ask.

    `base` is the address of this service, and `why` the reason why the last answer was refused.
    """
    message = _message(question, why)
    form = _form(question)
    params: protocol.ElicitRequestParams
    if form is not None and abilities.form:
        params = protocol.ElicitRequestFormParams(message=message, requested_schema=form.schema)
    elif abilities.url:
        url = inbox_url(base, question.id)
        params = protocol.ElicitRequestURLParams(message=message, url=url)
    else:
        return None
    return protocol.ElicitRequest(params=params)


def _form(question: views.InterruptView) -> Form | None:
    if question.may_answer is False or question.abridged:
        return None
    return form_of(question.response_schema)


def _message(question: views.InterruptView, why: str | None) -> str:
    parts = [question.prompt, *_shown(question.reason, question.payload, question.preview)]
    if question.deadline is not None:
        parts.append(f"Until {question.deadline.isoformat()}.")
    if question.may_answer is False and question.why_not is not None:
        parts.append(question.why_not.detail)
    if why is not None:
        parts.insert(0, f"The answer was refused: {why}")
    # People decide by this text, so it shows everything.
    return visible("\n\n".join(parts))


def _shown(*values: Json) -> list[str]:
    return [segments.as_text(value) for value in values if value is not None]


def answer_of(
    question: views.InterruptView, result: protocol.ElicitResult, abilities: Abilities
) -> Json | EllipsisType:
    """Return the answer from a client's response; `...` leaves the question open."""
    form = _form(question)
    if form is None or not abilities.form or result.action != "accept":
        # A client that was asked to open a page was asked for no answer, so any content is ignored.
        return ...
    return form.answer_of(result.content or {})


def result_of(view: views.RunView) -> protocol.CallToolResult:
    """Return the result of a run that has ended."""
    meta: dict[str, Any] = {RUN_ID: view.run_id}
    match view.status:
        case Status.COMPLETED:
            return protocol.CallToolResult(
                content=[_content(segments.as_text(view.result))],
                structured_content=view.result,
                _meta=meta,
            )
        case Status.CANCELLED:
            because = "" if view.reason is None else f": {view.reason}"
            return failed(Status.CANCELLED, f"The run was cancelled{because}.", meta=meta)
        case _:
            code, message = segments.why(view)
            return failed(code, message, meta=meta)


def failed(
    code: str, message: str, *, meta: dict[str, Any] | None = None, **details: Json
) -> protocol.CallToolResult:
    """Return the result of a call that failed or was refused, which its model can read."""
    return protocol.CallToolResult(
        content=[_content(f"{code}: {message}")],
        structured_content={**details, "code": code, "detail": message},
        is_error=True,
        _meta=meta,
    )


def told(about: Mapping[str, Json], text: str) -> protocol.CallToolResult:
    """Return a result about runs, as data and as text for a model."""
    meta = {RUN_ID: about["run_id"]} if "run_id" in about else None
    # Many clients show only the texts to their model.
    content = [_content(visible(text)), _content(segments.as_text(about))]
    return protocol.CallToolResult(content=content, structured_content=dict(about), _meta=meta)


def not_yet(
    view: views.RunView, questions: Sequence[views.InterruptView], base: str
) -> protocol.CallToolResult:
    """Return a result that says what an open run waits for, for a client that cannot be asked."""
    asked = [entry_of(each, base) for each in questions]
    text = f"The run {view.run_id} is {view.status}. Call `pending` with its run_id for its result."
    if asked:
        text = (
            f"The run {view.run_id} waits for people:\n{_lines(asked)}\nOpen an address to answer there, "
            "or call `answer` with the id. Then call `pending` with the run_id for what comes of it."
        )
    return told({"run_id": view.run_id, "status": view.status, "questions": asked}, text)


def standing(
    view: views.RunView, questions: Sequence[views.InterruptView], base: str
) -> protocol.CallToolResult:
    """Return the result of a run, or what an open one waits for."""
    return result_of(view) if view.ended_at is not None else not_yet(view, questions, base)


def answered(
    receipt: Receipt, view: views.RunView, questions: Sequence[views.InterruptView], base: str
) -> protocol.CallToolResult:
    """Return the effect of an answer, and the state of the run."""
    result = standing(view, questions, base)
    match receipt.status:
        case "voted":
            text = f"The answer is a vote; {receipt.missing} more are needed."
        case "held":
            text = f"The answer can be taken back until {receipt.held_until}; until then it waits."
        case "answered":
            text = "The question is answered."
    return result.model_copy(update={"content": [_content(text), *result.content]})


def listed(
    questions: Sequence[views.InterruptView], cursor: str | None, base: str
) -> protocol.CallToolResult:
    """Return a list of open questions of several runs, without the details that only a run has."""
    asked = [entry_of(each, base) for each in questions]
    text = _lines(asked) or "Nothing waits for people."
    if cursor is not None:
        text = f"{text}\nThere may be more: call `pending` with the cursor {cursor}."
    return told({"questions": asked, "next_cursor": cursor}, text)


def _lines(asked: Sequence[Mapping[str, Json]]) -> str:
    return "\n".join(f"- {each['prompt']} ({each['interrupt_id']}) {each['url']}" for each in asked)


def entry_of(question: views.InterruptView, base: str) -> dict[str, Json]:
    """Return an open question for a model."""
    about: dict[str, Json] = {
        "interrupt_id": question.id,
        "run_id": question.run_id,
        "graph": question.graph,
        "kind": question.kind,
        "prompt": question.prompt,
        "reason": question.reason,
        "payload": question.payload,
        "response_schema": question.response_schema,
        "deadline": None if question.deadline is None else question.deadline.isoformat(),
        "may_answer": question.may_answer,
        "why_not": None if question.why_not is None else question.why_not.detail,
        "digest": question.digest,
        "url": inbox_url(base, question.id),
    }
    return {name: value for name, value in about.items() if value is not None}


def created(view: views.RunView) -> dict[str, Any]:
    """Return a new task, which its client then polls."""
    return {"resultType": "task", **_task(view, _POLL_MS)}


def _task(view: views.RunView, poll_ms: int) -> dict[str, Any]:
    return {
        "taskId": view.run_id,
        "status": "working",
        "createdAt": view.created_at.isoformat(),
        "lastUpdatedAt": view.updated_at.isoformat(),
        "ttlMs": None,
        "pollIntervalMs": poll_ms,
    }


def task_of(
    view: views.RunView,
    questions: Sequence[views.InterruptView],
    abilities: Abilities,
    base: str,
) -> dict[str, Any]:
    """Return a run as a task, with what it waits for or its result."""
    requests = {
        segments.shown_id(each): request
        for each in questions
        if (request := request_of(each, abilities, base)) is not None
    }
    task = _task(view, _POLL_ASKED_MS if questions else _POLL_MS)
    if (why := _why_it_waits(view, questions, requests, base)) is not None:
        task["statusMessage"] = visible(why)
    if view.ended_at is None:
        if requests:
            task["status"] = "input_required"
            task["inputRequests"] = {
                key: request.model_dump(by_alias=True, mode="json", exclude_none=True)
                for key, request in requests.items()
            }
        return task
    if view.status == Status.CANCELLED:
        return {**task, "status": "cancelled", "statusMessage": view.reason or "cancelled"}
    result = result_of(view).model_dump(by_alias=True, mode="json", exclude_none=True)
    # The result is the same as for a call: a failed run is not a fault of the protocol.
    return {**task, "status": "completed", "result": {"resultType": "complete", **result}}


def _why_it_waits(
    view: views.RunView,
    questions: Sequence[views.InterruptView],
    requests: Mapping[str, Any],
    base: str,
) -> str | None:
    beyond = [each for each in questions if segments.shown_id(each) not in requests]
    if beyond:
        links = ", ".join(inbox_url(base, each.id) for each in beyond)
        return f"Waits for people, who answer at {links}."
    if view.blocked:
        return f"Blocked ({view.blocked[0].code}): {view.blocked[0].message}"
    return "The run is paused." if view.paused else None


def _content(text: str) -> protocol.TextContent:
    return protocol.TextContent(text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form of the protocol. `is_wrapped`: its only field is the answer."""

    schema: dict[str, Any]
    is_wrapped: bool = False

    def answer_of(self, content: Mapping[str, Json]) -> Json:
        """Return the answer from a filled-in form."""
        filled = {
            name: value
            for name, value in content.items()
            if value is not None or name in self.schema["required"]
        }
        return filled.get(_ANSWER) if self.is_wrapped else filled


def form_of(schema: Json) -> Form | None:
    """Return the form for the answers to a question; None if they are not flat."""
    if schema is None:
        return _wrapped({"type": "string"})
    if not isinstance(schema, Mapping):
        return None
    root, (schema, _) = schema, without_null(schema, schema)
    if schema.get("type") != "object":
        field = _field(schema, root)
        return None if field is None else _wrapped(field)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties or any(map(schema.get, _BRANCHES)):
        return None
    fields = {name: _field(each, root) for name, each in properties.items()}
    if any(field is None for field in fields.values()):
        return None
    required = [name for name in schema.get("required") or () if name in fields]
    return Form(schema={"type": "object", "properties": fields, "required": required})


def _wrapped(field: dict[str, Any]) -> Form:
    schema = {"type": "object", "properties": {_ANSWER: field}, "required": [_ANSWER]}
    return Form(schema=schema, is_wrapped=True)


def _field(declared: Json, root: Json) -> dict[str, Any] | None:
    """Return a field in the form's schema; None if it is not flat. A nullable field may be left out."""
    schema, _ = without_null(declared, root)
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    type_ = schema.get("type", "string" if choices else None)
    if not isinstance(type_, str) or type_ not in _FIELDS or any(map(schema.get, _BRANCHES)):
        return None
    keys = (*_SHARED, *_FIELDS[type_])
    field = {"type": type_, **{key: schema[key] for key in keys if schema.get(key) is not None}}
    if choices is not None:
        if type_ != "string" or not _are_texts(choices):
            return None
        field["enum"] = list(choices)
    if type_ == "string" and schema.get("format") in _FORMATS:
        field["format"] = schema["format"]
    if type_ == "array":
        names = without_null(schema.get("items"), root)[0].get("enum")
        if not _are_texts(names):
            return None
        field["items"] = {"type": "string", "enum": names}
    return field


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)

"""Refusals as HTTP tells them: RFC 9457 problems.

This is the only place that knows which status goes with which code.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.routing import Match

from abeyance.core.authority import READ
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.schemas.state_model import pointer

MEDIA_TYPE: Final = "application/problem+json"

PROBLEMS: Final[Mapping[Code, tuple[int, str]]] = {
    Code.MALFORMED_BODY: (400, "Malformed JSON body"),
    Code.UNAUTHENTICATED: (401, "Authentication required"),
    Code.CAPABILITY_REQUIRED: (403, "Missing capability"),
    Code.FOREIGN_ORIGIN: (403, "Disallowed host or origin"),
    Code.UNKNOWN_RUN: (404, "Unknown run"),
    Code.NOT_RUNNING: (404, "Run already ended"),
    Code.UNKNOWN_GRAPH: (404, "Unknown graph"),
    Code.UNKNOWN_INTERRUPT: (404, "Unknown interrupt"),
    Code.UNKNOWN_NODE: (404, "Unknown node"),
    Code.NO_ACTIVE_RUN: (404, "No active run in the conversation"),
    Code.RUN_EXISTS: (409, "Duplicate run id"),
    Code.RUN_FINISHED: (409, "Answer to a run that has ended"),
    Code.ALREADY_ANSWERED: (409, "Interrupt already answered"),
    Code.NOT_ROOT_CAUSE: (409, "Interrupt waiting for other interrupts"),
    Code.WITHDRAWN: (409, "Withdrawn interrupt"),
    Code.STALE: (409, "Outdated digest or version"),
    Code.AMBIGUOUS_INTERRUPT: (409, "Ambiguous interrupt"),
    Code.AMBIGUOUS_RUN: (409, "Ambiguous run"),
    Code.MESSAGE_CONFLICT: (409, "Message id conflict"),
    Code.CONVERSATION_BUSY: (409, "Conversation with an active run"),
    Code.IDEMPOTENCY_CONFLICT: (409, "Idempotency key conflict"),
    Code.NOT_STOPPED: (409, "Run neither paused nor waiting"),
    Code.NOT_FINISHED: (409, "Run not ended yet"),
    Code.NATIVELY_PAUSED: (409, "Workflow paused in Temporal"),
    Code.NOT_SEALED: (409, "Payload not encrypted for this run"),
    Code.EXPIRED: (410, "Expired interrupt"),
    Code.GONE: (410, "Data no longer retained"),
    Code.PAYLOAD_TOO_LARGE: (413, "Request too large"),
    Code.INVALID_BODY: (422, "Invalid request"),
    Code.INVALID_RUN_ID: (422, "Invalid run id"),
    Code.INVALID_INPUT: (422, "Invalid graph input"),
    Code.INVALID_ANSWER: (422, "Invalid answer"),
    Code.INVALID_MESSAGE: (422, "Invalid message"),
    Code.ACTION_NOT_ALLOWED: (422, "Disallowed action"),
    Code.QUEUE_FULL: (429, "Message queue full"),
    Code.TOO_MANY_RUNS: (429, "Too many runs"),
    Code.UNAVAILABLE: (503, "Service unavailable"),
}

_MEMBERS: Final = frozenset({"type", "title", "status", "detail", "code"})
# What a refusal calls so where the problem has a member of that name already.
_RENAMED: Final = {"status": "interrupt_status"}
_VALUES: Final = frozenset({"values", "answer"})
"""Members of refusals that only those are told who may read the run."""
_SHOWN_CHARS: Final = 80
_UNKNOWN_PATH: Final = 404
_NOT_ALLOWED: Final = 405
_METHODS: Final = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_UNSET_UP_RETRY: Final = 30.0
_FULL_RETRY: Final = {Code.QUEUE_FULL: 1, Code.TOO_MANY_RUNS: 5}
"""Seconds after which what is full may have room: a run reads at its next boundary, and ends later."""
_logger = logging.getLogger("abeyance.api")


def problem(
    status: int,
    code: str,
    title: str,
    detail: str,
    *,
    members: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem as a response. `members` go beside the standard ones and never replace them."""
    beside = {_RENAMED.get(name, name): value for name, value in (members or {}).items()}
    content = {
        "type": f"urn:abeyance:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        **{name: value for name, value in beside.items() if name not in _MEMBERS},
    }
    return Response(
        to_json(content), status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {})
    )


def refused(refusal: Refusal, *, headers: Mapping[str, str] | None = None) -> Response:
    """A refusal as a response."""
    status, title = PROBLEMS[refusal.code]
    if refusal.code is Code.UNAUTHENTICATED:
        headers = {"WWW-Authenticate": 'Bearer realm="abeyance"', **(headers or {})}
    if (after := _FULL_RETRY.get(refusal.code)) is not None:
        headers = {"Retry-After": str(after), **(headers or {})}
    return problem(
        status,
        refusal.code,
        title,
        refusal.message,
        members=refusal.details,
        headers=headers,
    )


def unavailable(
    detail: str, *, retry_after: float, members: Mapping[str, Any] | None = None
) -> Response:
    """The 503 of a service behind us that cannot be reached now."""
    status, title = PROBLEMS[Code.UNAVAILABLE]
    headers = {"Retry-After": str(max(1, math.ceil(retry_after)))}
    return problem(status, Code.UNAVAILABLE, title, detail, members=members, headers=headers)


def invalid(errors: Sequence[Mapping[str, str]]) -> Refusal:
    """The refusal of a request whose form is wrong; `errors` are `{pointer, message}`."""
    listed = "; ".join(f"{entry['pointer'] or 'the body'}: {entry['message']}" for entry in errors)
    return Refusal(Code.INVALID_BODY, f"The request is invalid: {listed}.", errors=[*errors])


def install(app: FastAPI) -> None:
    """Let every error of the application become a problem."""
    app.add_exception_handler(Refusal, _on_refusal)
    app.add_exception_handler(Unavailable, _on_unavailable)
    app.add_exception_handler(SettingsError, _on_settings_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_defect)


def _on_refusal(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise error
    who = getattr(request.state, "who", None)
    if not (isinstance(who, Principal) and who.may(READ)):
        error.details = {name: told for name, told in error.details.items() if name not in _VALUES}
    return refused(error)


def _on_unavailable(_request: Request, error: Exception) -> Response:
    if not isinstance(error, Unavailable):
        raise error
    return unavailable(str(error), retry_after=error.retry_after)


def _on_settings_error(_request: Request, error: Exception) -> Response:
    # Temporal answers, but was not set up for us. The caller can only wait for the operator.
    _logger.error("code=%s | %s", Code.UNAVAILABLE, error)
    return unavailable(str(error), retry_after=_UNSET_UP_RETRY)


def _on_invalid_request(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    return refused(invalid([_fault(entry, error.body) for entry in error.errors()]))


def _on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    call = f"{request.method} {request.url.path[:200]}"
    headers = dict(error.headers or {})
    match error.status_code:
        case status if status == _UNKNOWN_PATH:
            code, title = "unknown_path", "Unknown path"
            detail = f"{call} is not an endpoint of this API: see /openapi.json for the list."
        case status if status == _NOT_ALLOWED:
            # The framework names those of the first route of the path only.
            headers["Allow"] = ", ".join(_methods(request))
            code, title = "method_not_allowed", "Method not allowed"
            detail = f"{call} is not supported: this path accepts {headers['Allow']}."
        case status:
            code, title, detail = "http_error", "Request refused", str(error.detail)
    return problem(status, code, title, detail, headers=headers)


def _methods(request: Request) -> list[str]:
    """The methods that the path of a request takes."""

    def is_taken(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return [method for method in _METHODS if is_taken(method)]


def _on_defect(_request: Request, _error: Exception) -> Response:
    # The framework raises the error again after this answer, and the server logs it.
    return problem(
        500,
        "internal_error",
        "Internal error",
        "An unexpected error occurred, and the request may or may not have taken effect. Retry it with "
        "the same ids, which is safe. The log of the service has the details.",
    )


def _fault(entry: Mapping[str, Any], body: Any) -> dict[str, str]:
    place, *path = entry["loc"]
    message = _message(entry)
    if place == "body":
        return {"pointer": pointer(path, entry["type"], body), "message": message}
    return {"pointer": pointer(path, entry["type"]), "message": message, "in": str(place)}


def _message(entry: Mapping[str, Any]) -> str:
    match entry["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return "is not a field of this request"
        case "value_error":
            return str(entry["msg"]).removeprefix("Value error, ")
        case _:
            text = str(entry["msg"])
            value = repr(entry.get("input"))
            shown = value if len(value) <= _SHOWN_CHARS else f"{value[:_SHOWN_CHARS]}..."
            return f"{text[:1].lower()}{text[1:]} (got {shown})"

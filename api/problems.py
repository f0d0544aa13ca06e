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
from abeyance.core.json import truncate
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.schemas.state_model import pointer

MEDIA_TYPE: Final = "application/problem+json"

PROBLEMS: Final[Mapping[Code, tuple[int, str]]] = {
    Code.MALFORMED_BODY: (400, "The body is not JSON"),
    Code.UNAUTHENTICATED: (401, "Nobody we know"),
    Code.CAPABILITY_REQUIRED: (403, "A capability is missing"),
    Code.FOREIGN_ORIGIN: (403, "The request comes from a foreign page"),
    Code.UNKNOWN_RUN: (404, "There is no such run"),
    Code.NOT_RUNNING: (404, "The run has ended"),
    Code.UNKNOWN_GRAPH: (404, "There is no such graph"),
    Code.UNKNOWN_INTERRUPT: (404, "There is no such interrupt"),
    Code.UNKNOWN_NODE: (404, "There is no such node"),
    Code.NO_ACTIVE_RUN: (404, "No run of the conversation is active"),
    Code.RUN_EXISTS: (409, "The run id is taken"),
    Code.RUN_FINISHED: (409, "The run has ended and waits for no answer"),
    Code.ALREADY_ANSWERED: (409, "The interrupt was answered before"),
    Code.NOT_ROOT_CAUSE: (409, "The interrupt waits for others"),
    Code.WITHDRAWN: (409, "The interrupt was withdrawn"),
    Code.STALE: (409, "What the caller was shown has changed"),
    Code.AMBIGUOUS_INTERRUPT: (409, "It is not clear which interrupt is meant"),
    Code.AMBIGUOUS_RUN: (409, "It is not clear which run is meant"),
    Code.MESSAGE_CONFLICT: (409, "The message id was used before"),
    Code.CONVERSATION_BUSY: (409, "The conversation has an active run"),
    Code.IDEMPOTENCY_CONFLICT: (409, "The idempotency key was used before"),
    Code.NOT_STOPPED: (409, "The run is neither paused nor waiting"),
    Code.NOT_FINISHED: (409, "The run has not ended"),
    Code.NATIVELY_PAUSED: (409, "The run is paused through Temporal"),
    Code.NOT_SEALED: (409, "It was not encrypted for this run"),
    Code.EXPIRED: (410, "The interrupt's deadline has passed"),
    Code.GONE: (410, "What was asked for is no longer kept"),
    Code.PAYLOAD_TOO_LARGE: (413, "The request is too large"),
    Code.INVALID_BODY: (422, "The request does not have the expected form"),
    Code.INVALID_RUN_ID: (422, "The run id cannot be used"),
    Code.INVALID_INPUT: (422, "The input does not fit the graph"),
    Code.INVALID_ANSWER: (422, "The answer does not fit its schema"),
    Code.INVALID_MESSAGE: (422, "The message cannot be accepted"),
    Code.ACTION_NOT_ALLOWED: (422, "The action is not allowed"),
    Code.QUEUE_FULL: (429, "The run's mailbox is full"),
    Code.TOO_MANY_RUNS: (429, "Too many runs are active"),
    Code.UNAVAILABLE: (503, "Something that this service needs cannot be reached"),
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
    return Refusal(Code.INVALID_BODY, f"The request cannot be used. {listed}.", errors=[*errors])


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
    told = f"{request.method} {request.url.path[:200]}"
    headers = dict(error.headers or {})
    match error.status_code:
        case status if status == _UNKNOWN_PATH:
            code, title = "unknown_path", "There is no such path"
            detail = f"{told} is not a call of this API; /openapi.json lists them."
        case status if status == _NOT_ALLOWED:
            # The framework names those of the first route of the path only.
            headers["Allow"] = ", ".join(_methods(request))
            code, title = "method_not_allowed", "The path has no such method"
            detail = f"{told}: this path takes {headers['Allow']}."
        case status:
            code, title, detail = "http_error", "The request was refused", str(error.detail)
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
        "A defect of this service",
        "Something went wrong that should not have. What was asked for may or may not have been done; "
        "a repeat with the same ids is safe. The log of the service says more.",
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
            return "there is no such field"
        case "value_error":
            return str(entry["msg"]).removeprefix("Value error, ")
        case _:
            text = str(entry["msg"])
            shown = truncate(repr(entry.get("input")), _SHOWN_CHARS)
            return f"{text[:1].lower()}{text[1:]} (given: {shown})"

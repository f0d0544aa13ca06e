"""Problem responses (RFC 9457): the status and title of each code, and the exception handlers."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from abeyance.core.policy import READ, Principal
from abeyance.errors import Code, RecordsUnavailable, Refusal, SettingsError, Unavailable
from abeyance.schemas.faults import MOST_FAULTS, request_faults
from abeyance.util import PROBLEM_TYPE, invalid

MEDIA_TYPE: Final = "application/problem+json"

PROBLEMS: Final[Mapping[Code, tuple[int, str]]] = {
    Code.MALFORMED_BODY: (400, "Malformed JSON body"),
    Code.UNAUTHENTICATED: (401, "Authentication required"),
    Code.LINK_EXPIRED: (401, "Personal link no longer valid"),
    Code.CAPABILITY_REQUIRED: (403, "Missing capability"),
    Code.OUTSIDE_READS: (403, "Outside of the caller's read rights"),
    Code.NOT_ASSIGNED: (403, "Not assigned to you"),
    Code.SEPARATION_OF_DUTIES: (403, "Another person has to answer"),
    Code.FOREIGN_ORIGIN: (403, "Disallowed host or origin"),
    Code.UNKNOWN_RUN: (404, "Unknown run"),
    Code.NOT_RUNNING: (404, "Run already ended"),
    Code.UNKNOWN_GRAPH: (404, "Unknown graph"),
    Code.UNKNOWN_INTERRUPT: (404, "Unknown interrupt"),
    Code.UNKNOWN_NODE: (404, "Unknown node"),
    Code.NOT_FOUND: (404, "Unknown delegation, grant or file"),
    Code.NO_ACTIVE_RUN: (404, "No active run in the conversation"),
    Code.RUN_EXISTS: (409, "Duplicate run id"),
    Code.RUN_FINISHED: (409, "Run has ended"),
    Code.ALREADY_ANSWERED: (409, "Interrupt already answered"),
    Code.NOT_ROOT_CAUSE: (409, "Interrupt waiting for other interrupts"),
    Code.WITHDRAWN: (409, "Withdrawn interrupt"),
    Code.STALE: (409, "Outdated digest or version"),
    Code.NOTHING_OPEN: (409, "No open interrupt"),
    Code.AMBIGUOUS_INTERRUPT: (409, "Ambiguous interrupt"),
    Code.AMBIGUOUS_DELEGATION: (409, "Ambiguous delegation"),
    Code.CLAIMED: (409, "Interrupt claimed by somebody else"),
    Code.NOT_CLAIMABLE: (409, "Interrupt that nobody can claim"),
    Code.AMBIGUOUS_RUN: (409, "Ambiguous run"),
    Code.MESSAGE_CONFLICT: (409, "Message id conflict"),
    Code.CONVERSATION_BUSY: (409, "Conversation with an active run"),
    Code.IDEMPOTENCY_CONFLICT: (409, "Idempotency key conflict"),
    Code.NOT_STOPPED: (409, "Run neither paused nor waiting"),
    Code.NOT_FINISHED: (409, "Run not ended yet"),
    Code.NOT_HELD: (409, "Answer not held"),
    Code.CANNOT_MIGRATE: (409, "Run that cannot move to the graph"),
    Code.VERSIONS_DIFFER: (409, "Different versions of the graph"),
    Code.NATIVELY_PAUSED: (409, "Workflow paused in Temporal"),
    Code.NOT_SEALED: (409, "Payload not encrypted for this run"),
    Code.EXPIRED: (410, "Expired interrupt"),
    Code.GONE: (410, "Data no longer retained"),
    Code.CURSOR_EXPIRED: (410, "Cursor of an earlier database"),
    Code.ERASED: (410, "Erased run"),
    Code.PAYLOAD_TOO_LARGE: (413, "Request too large"),
    Code.UNSUPPORTED_MEDIA_TYPE: (415, "Unsupported content type"),
    Code.INVALID_BODY: (422, "Invalid request"),
    Code.INVALID_RUN_ID: (422, "Invalid run id"),
    Code.INVALID_INPUT: (422, "Invalid graph input"),
    Code.READ_ONLY_FIELD: (422, "Field that only the start sets"),
    Code.INVALID_ANSWER: (422, "Invalid answer"),
    Code.DECISION_NOT_ALLOWED: (422, "Decision not allowed"),
    Code.NOT_REMEMBERABLE: (422, "Approval that cannot be remembered"),
    Code.GRANT_TOO_WIDE: (422, "Too much to remember"),
    Code.INVALID_MESSAGE: (422, "Invalid message"),
    Code.ACTION_NOT_ALLOWED: (422, "Disallowed action"),
    Code.QUEUE_FULL: (429, "Message queue full"),
    Code.TOO_MANY_RUNS: (429, "Too many runs or streams"),
    Code.RECORDS_UNAVAILABLE: (503, "Records unavailable"),
    Code.UNAVAILABLE: (503, "Service unavailable"),
}

_MEMBERS: Final = frozenset({"type", "title", "status", "detail", "code"})
# Details whose name is a standard member of a problem.
_RENAMED: Final = {"status": "interrupt_status"}
_VALUES: Final = frozenset({"values", "answer"})
"""Details that only callers with `runs:read` get."""
_METHODS: Final = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_SETUP_RETRY_SECONDS: Final = 30.0
_RETRY_AFTER: Final = {Code.QUEUE_FULL: 1, Code.TOO_MANY_RUNS: 5}
"""In seconds. A run reads its messages soon, and takes longer to end."""
_logger = logging.getLogger("abeyance.api")


class Problem(Response):
    """A problem response. `members` extend the standard ones and never replace them."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        detail: str,
        *,
        members: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        extra = {_RENAMED.get(name, name): value for name, value in (members or {}).items()}
        content = {
            "type": f"{PROBLEM_TYPE}{code}",
            "title": title,
            "status": status,
            "detail": detail,
            "code": code,
            **{name: value for name, value in extra.items() if name not in _MEMBERS},
        }
        self._code = code
        super().__init__(to_json(content), status_code=status, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, and leave its code in `request.state` for the metrics."""
        scope.setdefault("state", {})["code"] = self._code
        await super().__call__(scope, receive, send)


def refused(refusal: Refusal, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for a refusal."""
    status, title = PROBLEMS[refusal.code]
    if refusal.code is Code.UNAUTHENTICATED:
        headers = {"WWW-Authenticate": 'Bearer realm="abeyance"', **(headers or {})}
    if (after := _RETRY_AFTER.get(refusal.code)) is not None:
        headers = {"Retry-After": str(after), **(headers or {})}
    return Problem(
        status,
        refusal.code,
        title,
        refusal.message,
        members=refusal.details,
        headers=headers,
    )


def unavailable(
    detail: str,
    *,
    retry_after: float,
    code: Code = Code.UNAVAILABLE,
    members: Mapping[str, Any] | None = None,
) -> Response:
    """Return the 503 response for a dependency that cannot be reached."""
    status, title = PROBLEMS[code]
    headers = retry_header(retry_after)
    return Problem(status, code, title, detail, members=members, headers=headers)


def code_of(error: Unavailable | SettingsError) -> Code:
    """Return the code of an error that the caller can only wait out."""
    return error.code if isinstance(error, RecordsUnavailable) else Code.UNAVAILABLE


def retry_header(seconds: float) -> dict[str, str]:
    """Return the header that says when to repeat a request."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def install(app: FastAPI) -> None:
    """Turn every exception of the application into a problem response."""
    app.exception_handler(Refusal)(_on_refusal)
    app.exception_handler(Unavailable)(_on_unavailable)
    app.exception_handler(SettingsError)(_on_settings_error)
    app.exception_handler(RequestValidationError)(_on_invalid_request)
    app.exception_handler(HTTPException)(_on_http_exception)
    app.exception_handler(Exception)(_on_internal_error)


def _on_refusal(request: Request, error: Refusal) -> Response:
    caller = getattr(request.state, "caller", None)
    if not (isinstance(caller, Principal) and caller.may(READ)):
        error.details = {
            name: value for name, value in error.details.items() if name not in _VALUES
        }
    return refused(error)


def _on_unavailable(request: Request, error: Unavailable) -> Response:
    code = code_of(error)
    about = (code, request.method, request.url.path)
    _logger.warning("code=%s method=%s path=%s | %s", *about, error)
    return unavailable(str(error), retry_after=error.retry_after, code=code)


def _on_settings_error(_request: Request, error: SettingsError) -> Response:
    # Temporal responds but is not set up. The caller can only wait for the operator.
    _logger.error("code=%s | %s", Code.UNAVAILABLE, error)
    return unavailable(str(error), retry_after=_SETUP_RETRY_SECONDS)


def _on_invalid_request(_request: Request, error: RequestValidationError) -> Response:
    found: list[dict[str, str]] = []
    for entry in error.errors()[:MOST_FAULTS]:
        place, *path = entry["loc"]
        is_body = place == "body"
        faults = request_faults([{**entry, "loc": path}], error.body if is_body else None)
        found += faults if is_body else [{**each, "in": str(place)} for each in faults]
    return refused(invalid(found))


def _on_http_exception(request: Request, error: HTTPException) -> Response:
    call = f"{request.method} {request.url.path[:200]}"
    headers = dict(error.headers or {})
    match error.status_code:
        case 404:
            code, title = "unknown_path", "Unknown path"
            detail = f"{call} is not an endpoint of this API: see /openapi.json for the list."
        case 405:
            # The framework lists only the methods of the first route of the path.
            headers["Allow"] = ", ".join(_methods(request))
            code, title = "method_not_allowed", "Method not allowed"
            detail = f"{call} is not supported: this path accepts {headers['Allow']}."
        case _:
            code, title, detail = "http_error", "Request refused", str(error.detail)
    return Problem(error.status_code, code, title, detail, headers=headers)


def _methods(request: Request) -> list[str]:
    """Return the methods of the request's path."""

    def is_allowed(method: str) -> bool:
        scope = {**request.scope, "method": "GET" if method == "HEAD" else method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return [method for method in _METHODS if is_allowed(method)]


def _on_internal_error(_request: Request, _error: Exception) -> Response:
    # The framework raises the error again after this response, and the server logs it.
    return Problem(
        500,
        "internal_error",
        "Internal error",
        "An unexpected error occurred, and the request may or may not have taken effect. Retry it with "
        "the same ids, which is safe. The log of the service has the details.",
    )

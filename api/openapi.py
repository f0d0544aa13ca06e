"""The OpenAPI document, with an example of every response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from abeyance.api.problems import MEDIA_TYPE, PROBLEMS
from abeyance.errors import Code

_NOTES: Final = """\
Start agent graphs, answer their questions and control their runs.

Errors are problem details (RFC 9457). `code` is stable and meant for programs. Times are RFC 3339 in
UTC. Durations are ISO 8601, text such as `30s`, or seconds. Unknown fields and query parameters are
rejected.

If the service requires authentication, send `Authorization: Bearer <token>`. Otherwise it listens on
loopback only, and a request can name its principal with the headers `X-Abeyance-Principal` (subject) and
`X-Abeyance-Capabilities` (separated by commas; absent means all, empty means none), and its groups with
`X-Abeyance-Groups`. Send every request that changes something with `Content-Type: application/json`. A
request without a body can send the header `X-Abeyance-Request` instead.
"""

_JSON: Final = "application/json"
_PUBLIC_CODES: Final = (Code.FOREIGN_ORIGIN,)
_READ_CODES: Final = (
    *_PUBLIC_CODES,
    Code.UNAUTHENTICATED,
    Code.CAPABILITY_REQUIRED,
    Code.INVALID_BODY,
    Code.UNAVAILABLE,
    Code.RECORDS_UNAVAILABLE,
)
_CHANGE_CODES: Final = (
    *_READ_CODES,
    Code.MALFORMED_BODY,
    Code.PAYLOAD_TOO_LARGE,
    Code.UNSUPPORTED_MEDIA_TYPE,
)

_PROBLEM: Final = {
    "type": "object",
    "title": "Problem",
    "description": "The reason of a refusal (RFC 9457). Additional members depend on the code.",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {
            "type": "string",
            "description": "The problem, the value that caused it, and the fix.",
        },
        "code": {"type": "string", "description": "The reason, as a stable code for programs."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "message"],
                "properties": {
                    "pointer": {"type": "string", "description": "A JSON Pointer (RFC 6901)."},
                    "message": {"type": "string"},
                },
            },
        },
    },
    "additionalProperties": True,
}

_DELETED: Final = (Code.GONE, Code.ERASED)
"""What a route refuses a run with that Temporal had, if it refuses others as unknown."""
_RETRYABLE: Final = frozenset({429, 503})
_RETRY_AFTER: Final = {
    "description": "The number of seconds to wait before a retry.",
    "schema": {"type": "integer", "minimum": 1},
}

Responses = dict[int | str, dict[str, Any]]
"""The `responses` of a FastAPI route."""


def read(description: str, example: Any, *refusals: Code, media_type: str = _JSON) -> Responses:
    """Return the responses of a route that changes nothing."""
    success = _success(description, example, media_type)
    return {200: success, **_problems(*_READ_CODES, *refusals)}


def change(status: int, description: str, example: Any, *refusals: Code) -> Responses:
    """Return the responses of a route that changes something."""
    return {status: _success(description, example), **_problems(*_CHANGE_CODES, *refusals)}


def check(description: str, example: Any, *refusals: Code) -> Responses:
    """Return the responses of a public route."""
    return {200: _success(description, example), **_problems(*_PUBLIC_CODES, *refusals)}


def page(description: str, example: str, *refusals: Code) -> Responses:
    """Return the responses of a public page."""
    success = _success(description, example, "text/html")
    return {200: success, **_problems(*_PUBLIC_CODES, *refusals)}


def talk(description: str, example: str, *refusals: Code) -> Responses:
    """Return the responses of a route that answers with a stream of server-sent events."""
    success = _success(description, example, "text/event-stream")
    return {200: success, **_problems(*_CHANGE_CODES, *refusals)}


def also(description: str, example: Any, model: Any) -> dict[str, Any]:
    """Return a second successful response, of another model."""
    return {**_success(description, example), "model": model}


def install(app: FastAPI) -> None:
    """Replace the OpenAPI document of the framework."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                openapi_version=app.openapi_version,
                description=_NOTES,
                routes=app.routes,
            )
            components = document.setdefault("components", {})
            components.setdefault("schemas", {})["Problem"] = _PROBLEM
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}, {}]
            app.openapi_schema = document
        return app.openapi_schema

    # FastAPI documents this assignment.
    app.openapi = openapi  # type: ignore[method-assign]


def content(example: Any, media_type: str) -> dict[str, Any]:
    """Return an example of a response in the form of its media type: text, if it is not JSON."""
    about = {} if media_type == _JSON else {"schema": {"type": "string"}}
    return {media_type: {**about, "example": example}}


def _success(description: str, example: Any, media_type: str = _JSON) -> dict[str, Any]:
    return {"description": description, "content": content(example, media_type)}


def _problems(*codes: Code) -> Responses:
    by_status: dict[int, list[Code]] = {}
    for code in dict.fromkeys([*codes, *(_DELETED if Code.UNKNOWN_RUN in codes else ())]):
        by_status.setdefault(PROBLEMS[code][0], []).append(code)
    return {status: _refusal(by_status[status]) for status in sorted(by_status)}


def _refusal(codes: list[Code]) -> dict[str, Any]:
    examples: Mapping[str, Any] = {str(code): {"value": _example(code)} for code in codes}
    response: dict[str, Any] = {
        "description": "; ".join(PROBLEMS[code][1] for code in codes),
        "content": {
            MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": examples}
        },
    }
    if PROBLEMS[codes[0]][0] in _RETRYABLE:
        response["headers"] = {"Retry-After": _RETRY_AFTER}
    return response


def _example(code: Code) -> dict[str, Any]:
    status, title = PROBLEMS[code]
    return {
        "type": f"urn:abeyance:problem:{code}",
        "title": title,
        "status": status,
        "detail": f"{title}: the value that caused it, and the fix.",
        "code": str(code),
    }

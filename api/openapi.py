"""The OpenAPI document: what every call answers, with an example of each answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from abeyance.api.problems import MEDIA_TYPE, PROBLEMS
from abeyance.errors import Code

_NOTES: Final = """\
Runs of agent graphs that wait for people.

Errors are problems (RFC 9457) whose `code` says what was wrong. Times are RFC 3339 in UTC; durations
ISO 8601, or text such as `30s`, or seconds. A field, or a parameter of a query, that is not described is
refused.

With authentication send `Authorization: Bearer <token>`. Without it the service listens on loopback
only, and a request may name its principal in `X-Abeyance-Principal` (subject) and
`X-Abeyance-Capabilities` (separated by commas; absent is all, empty is none). Every call that changes
something is sent as `Content-Type: application/json`; one without a body may have the header
`X-Abeyance-Request` instead.
"""

_OF_ALL: Final = (Code.FOREIGN_ORIGIN,)
_OF_READS: Final = (
    *_OF_ALL,
    Code.UNAUTHENTICATED,
    Code.CAPABILITY_REQUIRED,
    Code.INVALID_BODY,
    Code.UNAVAILABLE,
)
_OF_CHANGES: Final = (*_OF_READS, Code.MALFORMED_BODY, Code.PAYLOAD_TOO_LARGE)

_PROBLEM: Final = {
    "type": "object",
    "title": "Problem",
    "description": "Why a request was refused (RFC 9457). Further members depend on the code.",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {
            "type": "string",
            "description": "What was wrong, with which value, and what to do.",
        },
        "code": {"type": "string", "description": "The reason, for programs."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "message"],
                "properties": {
                    "pointer": {"type": "string", "description": "A JSON pointer (RFC 6901)."},
                    "message": {"type": "string"},
                },
            },
        },
    },
    "additionalProperties": True,
}

_LATER: Final = frozenset({429, 503})
_RETRY_AFTER: Final = {
    "description": "After how many seconds it is worth trying again.",
    "schema": {"type": "integer", "minimum": 1},
}

Answers = dict[int | str, dict[str, Any]]
"""What FastAPI takes as `responses`."""


def read(description: str, example: Any, *refusals: Code) -> Answers:
    """The answers of a call that changes nothing."""
    return {200: _good(description, example), **_problems(*_OF_READS, *refusals)}


def text(description: str, example: str, *refusals: Code) -> Answers:
    """The answers of a call that changes nothing and answers with plain text."""
    content = {"text/plain": {"schema": {"type": "string"}, "example": example}}
    good = {"description": description, "content": content}
    return {200: good, **_problems(*_OF_READS, *refusals)}


def change(status: int, description: str, example: Any, *refusals: Code) -> Answers:
    """The answers of a call that changes something."""
    return {status: _good(description, example), **_problems(*_OF_CHANGES, *refusals)}


def check(description: str, example: Any, *refusals: Code) -> Answers:
    """The answers of a call that everybody may make."""
    return {200: _good(description, example), **_problems(*_OF_ALL, *refusals)}


def also(description: str, example: Any, model: Any) -> dict[str, Any]:
    """Another good answer of a call, of a model."""
    return {**_good(description, example), "model": model}


def install(app: FastAPI) -> None:
    """Let the application describe itself."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                openapi_version=app.openapi_version,
                description=_NOTES,
                routes=app.routes,
            )
            parts = document.setdefault("components", {})
            parts.setdefault("schemas", {})["Problem"] = _PROBLEM
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}, {}]
            app.openapi_schema = document
        return app.openapi_schema

    # The framework's own way to replace its document.
    app.openapi = openapi  # type: ignore[method-assign]


def _good(description: str, example: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"example": example}}}


def _problems(*codes: Code) -> Answers:
    by_status: dict[int, list[Code]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(PROBLEMS[code][0], []).append(code)
    return {status: _refused(by_status[status]) for status in sorted(by_status)}


def _refused(codes: list[Code]) -> dict[str, Any]:
    examples: Mapping[str, Any] = {str(code): {"value": _example(code)} for code in codes}
    refused: dict[str, Any] = {
        "description": "; ".join(PROBLEMS[code][1] for code in codes),
        "content": {
            MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": examples}
        },
    }
    if PROBLEMS[codes[0]][0] in _LATER:
        refused["headers"] = {"Retry-After": _RETRY_AFTER}
    return refused


def _example(code: Code) -> dict[str, Any]:
    status, title = PROBLEMS[code]
    return {
        "type": f"urn:abeyance:problem:{code}",
        "title": title,
        "status": status,
        "detail": f"{title}: here stands which value was wrong, and what to do.",
        "code": str(code),
    }

"""The OpenAPI document. The example of a JSON response is made of its schema."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from abeyance.api.problems import MEDIA_TYPE, PROBLEMS
from abeyance.errors import Code
from abeyance.schemas.example import Examples
from abeyance.util import PROBLEM_TYPE

_NOTES: Final = """\
Start agent graphs, answer their questions and control their runs.

Errors are problem details (RFC 9457). `code` is stable and meant for programs. Times are RFC 3339 in
UTC. Durations are ISO 8601, text such as `30s`, or seconds. Unknown fields and parameters are rejected.
Examples of responses leave out many of the fields that can be empty.

If the service requires authentication, send `Authorization: Bearer <token>`. Otherwise it listens on
loopback only, and a request can name its principal with the headers `X-Abeyance-Principal` (subject) and
`X-Abeyance-Capabilities` (separated by commas; absent means all, empty means none), and its groups with
`X-Abeyance-Groups`. Send every request that changes something with `Content-Type: application/json`. A
request without a body can send the header `X-Abeyance-Request` instead.
"""

_JSON: Final = "application/json"

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

_RETRY_AFTER: Final = {
    "description": "The number of seconds to wait before a retry, with 429 and 503.",
    "schema": {"type": "integer", "minimum": 1},
}

Responses = dict[int | str, dict[str, Any]]
"""The `responses` of a FastAPI route."""

_REFUSED: Final = "The call is refused, and nothing has changed: `code` says why."
_AWAY: Final = "Something that the call needs is away: repeat it later."
REFUSALS: Final[Responses] = {
    "4XX": {"$ref": "#/components/responses/Refused", "description": _REFUSED},
    "503": {"$ref": "#/components/responses/Unavailable", "description": _AWAY},
}
"""The error responses of every call: described once, with an example of each code."""


def shown(example: Any, media_type: str = _JSON, schema: Any = None) -> Responses:
    """Return the successful response of a route that its type does not describe, such as text."""
    about = {} if media_type == _JSON else {"schema": schema or {"type": "string"}}
    return {200: {"content": {media_type: {**about, "example": example}}}}


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
            components["responses"] = {
                "Refused": _problems(_REFUSED, range(400, 500)),
                "Unavailable": _problems(_AWAY, range(500, 600)),
            }
            _add_examples(document)
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}, {}]
            app.openapi_schema = document
        return app.openapi_schema

    # FastAPI documents this assignment.
    app.openapi = openapi  # type: ignore[method-assign]


def _add_examples(document: dict[str, Any]) -> None:
    """Give each successful JSON response an example, unless it has one."""
    made = Examples(root=document, shows_more=True)
    for call in (call for path in document["paths"].values() for call in path.values()):
        for status, response in call["responses"].items():
            form = response.get("content", {}).get(_JSON)
            if status.startswith("2") and form is not None:
                form.setdefault("example", made.of(form["schema"]))


def _problems(description: str, statuses: Container[int]) -> dict[str, Any]:
    examples = {
        str(code): {"value": _example(code)} for code in Code if PROBLEMS[code][0] in statuses
    }
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": schema, "examples": examples}},
        "headers": {"Retry-After": _RETRY_AFTER},
    }


def _example(code: Code) -> dict[str, Any]:
    status, title = PROBLEMS[code]
    return {
        "type": f"{PROBLEM_TYPE}{code}",
        "title": title,
        "status": status,
        "detail": f"{title}: the value that caused it, and the fix.",
        "code": str(code),
    }

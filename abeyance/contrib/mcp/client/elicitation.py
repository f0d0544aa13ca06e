"""Elicitations: questions of a server to a person during a tool call, and their answers on repetition.

A person may need days, and no call stays open that long. So a call is abandoned when its server elicits,
and repeated when the answer arrives; repeated questions are answered from the record. A question is
recognized by the digest of its message and schema; equal questions are matched in order. Any other
question is new, and gets a new name.

A server may send what the protocol allows: a form of texts, numbers, booleans and choices, or a url to
open. Anything else is declined, and no person sees it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from abeyance.authoring.interrupts import Interrupt
from abeyance.contrib.mcp.client.errors import McpToolError
from abeyance.core.json import Json, sha256, size, why_not_json
from abeyance.core.text import truncate
from abeyance.schemas.json_schema import loop_in, schema_of, without_lookaround

Action: TypeAlias = Literal["accept", "decline", "cancel"]

_FORMAT: Final = 1
"""The format of `saved`. Another format is ignored, and the call starts from its beginning."""
_MAX_QUESTION_BYTES: Final = 50_000
"""A question stays in the run's state while it is open."""
_MAX_ROUND_BYTES: Final = 200_000
_MAX_QUESTIONS: Final = 20
"""The limit of questions in one call, against a server that never stops asking."""
_MAX_REASON_CHARS: Final = 1_000
_FLAT: Final = frozenset({"array", "boolean", "integer", "number", "string"})
"""The types of a field."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elicitation:
    """A question of a server.

    `name` is unique in its call: `elicit`, then `elicit.2` and so on. `requested_schema` is the JSON
    Schema of the form to fill in; it is None if the person opens `url` instead. `saved` is passed to the
    call when it is repeated.
    """

    name: str
    server: str
    tool: str
    message: str
    requested_schema: Json = None
    url: str | None = None
    saved: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to an elicitation. `content` is the filled-in form, if the action is `accept`.

    `declined` is the reason if the question was declined without asking a person.
    """

    action: Action
    content: Mapping[str, Any] | None = None
    declined: str | None = None

    @classmethod
    def of(cls, answer: Json) -> Answer:
        """Read a validated answer to `elicitation_question`."""
        return cls(action=answer["action"], content=answer.get("content"))


Ask: TypeAlias = Callable[[Elicitation], Awaitable[Answer]]
"""Returns the answer to an elicitation, or raises, such as `Suspended`, to abandon the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitRequest:
    """An elicitation as the server sent it, without a name."""

    message: str
    requested_schema: Json = None
    url: str | None = None

    @property
    def digest(self) -> str:
        return sha256([self.message, self.requested_schema, self.url])


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A point of a call whose server keeps no state: the state, and the requests by the server's keys."""

    state: str | None
    requests: Mapping[str, ElicitRequest]


class Record:
    """The questions of one call, over all its repetitions."""

    def __init__(self, server: str, tool: str, saved: Json = None) -> None:
        is_readable = isinstance(saved, Mapping) and saved.get("format") == _FORMAT
        self._server, self._tool = server, tool
        self._asked: list[tuple[str, str]] = (
            [(name, digest) for name, digest in saved["asked"]] if is_readable else []
        )
        self._answers: dict[str, Answer] = {}
        self._used: set[str] = set()
        self._round = saved["round"] if is_readable else None
        self.handshake: bool = is_readable and saved["handshake"]
        """The tool elicits by requests to the client, which needs a protocol of 2025."""

    def resumed(self) -> tuple[Round, Mapping[str, str]] | None:
        """Return the round at which the call was abandoned, and the names of its questions by key.

        None means that the call must start from its beginning. Earlier questions count as asked.
        """
        if self._round is None:
            return None
        self._used = {name for name, _ in self._asked}
        requests = self._round["wanted"]
        return (
            Round(
                state=self._round["state"],
                requests={
                    key: ElicitRequest(
                        message=request["message"],
                        requested_schema=request["schema"],
                        url=request["url"],
                    )
                    for key, request in requests.items()
                },
            ),
            {key: request["name"] for key, request in requests.items()},
        )

    def restart(self) -> None:
        """Start the call from its beginning: its questions may repeat earlier ones."""
        self._used.clear()
        self._round = None

    def reached(self, round_: Round) -> Mapping[str, str]:
        """Save a round, and return the names of its questions by key. Raises McpToolError."""
        names = {key: self.name_of(request) for key, request in round_.requests.items()}
        self._round = {
            "state": round_.state,
            "wanted": {
                key: {
                    "name": names[key],
                    "message": request.message,
                    "schema": request.requested_schema,
                    "url": request.url,
                }
                for key, request in round_.requests.items()
            },
        }
        bytes_ = size(self._round)
        if bytes_ > _MAX_ROUND_BYTES:
            message = (
                f"the tool {self._tool!r} of {self._server} elicits with {bytes_} bytes of state, of at "
                f"most {_MAX_ROUND_BYTES}"
            )
            raise McpToolError("bad_elicitation", message)
        return names

    def name_of(self, request: ElicitRequest) -> str:
        """Return the name of a question. Raises McpToolError if it is not JSON, or one too many."""
        label = f"the tool {self._tool!r} of {self._server}"
        if (
            fault := why_not_json([request.message, request.requested_schema, request.url])
        ) is not None:
            message = f"{label} elicits with a question that is not JSON: {fault}"
            raise McpToolError("bad_elicitation", message)
        digest = request.digest
        for name, digest_ in self._asked:
            if digest_ == digest and name not in self._used:
                self._used.add(name)
                return name
        if len(self._asked) >= _MAX_QUESTIONS:
            message = (
                f"{label} asks more than the maximum of {_MAX_QUESTIONS} questions in one call"
            )
            raise McpToolError("bad_elicitation", message)
        number = len(self._asked) + 1
        name = "elicit" if number == 1 else f"elicit.{number}"
        self._asked.append((name, digest))
        self._used.add(name)
        return name

    async def answer(self, name: str, request: ElicitRequest, ask: Ask) -> Answer:
        """Return the answer to a question, asking once per attempt. An invalid question is declined."""
        if name in self._answers:
            return self._answers[name]
        try:
            form = _response_form(request)
        except ValueError as error:
            reason = str(error)[:_MAX_REASON_CHARS]
            _log.warning(
                "server=%s tool=%s | declined an elicitation: %r", self._server, self._tool, reason
            )
            self._answers[name] = Answer(action="decline", declined=reason)
        else:
            elicitation = Elicitation(
                name=name,
                server=self._server,
                tool=self._tool,
                message=request.message,
                requested_schema=form,
                url=request.url,
                saved={
                    "format": _FORMAT,
                    "asked": [list(each) for each in self._asked],
                    "round": self._round,
                    "handshake": self.handshake,
                },
            )
            self._answers[name] = await ask(elicitation)
        return self._answers[name]


def elicitation_question(
    elicitation: Elicitation,
    *,
    requested_capability: str | None = None,
) -> Interrupt:
    """Return the interrupt, of the kind `elicitation`, that shows an elicitation to a person.

    The answer is `{action: "accept", content}`, `{action: "decline"}` or `{action: "cancel"}`. The prompt
    is the server's text, unchanged. `reason` holds the server, the tool, and the `url` to open, if
    any; an answer has no `content` then.
    """
    url = elicitation.url
    return Interrupt(
        elicitation.name,
        prompt=elicitation.message,
        reason={
            "server": elicitation.server,
            "tool": elicitation.tool,
            **({} if url is None else {"url": url}),
        },
        response=_response(elicitation.requested_schema) if url is None else _CONSENT,
        requested_capability=requested_capability,
        state=elicitation.saved,
    )


_ACTIONS: Final = {"type": "string", "enum": ["accept", "decline", "cancel"]}
_CONSENT: Final = {
    "type": "object",
    "properties": {"action": _ACTIONS},
    "required": ["action"],
    "additionalProperties": False,
}


def _response(form: Json) -> Json:
    return {
        **_CONSENT,
        "properties": {"action": _ACTIONS, "content": form},
        "if": {"properties": {"action": {"const": "accept"}}},
        "then": {"required": ["content"]},
        "else": {"properties": {"content": False}},
    }


def _response_form(request: ElicitRequest) -> Json:
    """Return the schema of the form to fill in, or None if the person opens a url.

    Raises ValueError for a request that a server may not send.
    """
    bytes_ = size([request.message, request.requested_schema, request.url])
    if bytes_ > _MAX_QUESTION_BYTES:
        raise ValueError(f"it takes {bytes_} bytes of at most {_MAX_QUESTION_BYTES}")
    if request.url is None:
        _refuse_nested(request.requested_schema)
        form = without_lookaround(request.requested_schema)
        schema = _response(form)
        schema_of(schema)
        if (reference := loop_in(schema)) is not None:
            raise ValueError(f"the form refers to itself by {reference!r}")
        return form
    if not request.url.startswith(("https://", "http://")):
        raise ValueError(
            f"the url {truncate(request.url, 200)!r} begins with neither https:// nor http://, so no "
            "person is sent there"
        )
    return None


def _refuse_nested(schema: Json) -> None:
    """Raise ValueError for a form that is not a flat object: no client can send its answer."""
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(fields, Mapping) or schema.get("type") != "object":
        raise ValueError("a form must be an object with properties: use a url for anything else")
    for name, field in fields.items():
        kind = field.get("type") if isinstance(field, Mapping) else None
        if not isinstance(kind, str) or kind not in _FLAT:
            raise ValueError(
                f"the field {name!r} has the type {kind!r}: use one of {', '.join(sorted(_FLAT))}, or a "
                "url for anything else"
            )
        items = field.get("items") if kind == "array" else {"enum": ()}
        if not isinstance(items, Mapping) or not {"enum", "anyOf"} & items.keys():
            raise ValueError(
                f"the field {name!r} is a list without choices: give its items enum or anyOf"
            )

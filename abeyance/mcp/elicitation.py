"""What a server asks a person in the middle of a tool call, and how it is asked again.

A person may need days, and no call stays open for days. So the call is given up when a server asks, and
made again when there is an answer; what the server asks then is answered from the record. A question is
known again by the digest of its message and of the schema of its answer, and the first of equal ones is
the first that was asked. One that is different is a new question, under a new name.

A server may ask for what the protocol allows, a form of texts, numbers, yes or no and choices, or send
people to an address. Whatever else it asks is declined, and nobody is shown it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from abeyance.authoring.interrupts import Interrupt
from abeyance.core.json import Json, sha256, size, why_not_json
from abeyance.mcp.errors import McpToolError
from abeyance.schemas.json_schema import schema_of, without_lookaround

Action: TypeAlias = Literal["accept", "decline", "cancel"]

_FORMAT: Final = 1
"""Of `saved`. What was saved in another one is not read: the call starts from its beginning."""
_LARGEST: Final = 50_000
"""In bytes: what is shown to a person stays in the run's state for as long as the question is open."""
_LARGEST_ROUND: Final = 200_000
_MOST: Final = 20
"""Questions that one call may ask: a server that never has enough would keep people busy for ever."""
_LONGEST_REASON: Final = 1_000
_CHOICES: Final[Mapping[str, str]] = {"string": "oneOf", "array": "anyOf"}
"""Where choices stand that have titles: of one text in its field, of several in the items of a list."""
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset(
        {"minLength", "maxLength", "format", "pattern", "enum", "enumNames", "oneOf"}
    ),
    "integer": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
    "number": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
    "boolean": frozenset(),
    "array": frozenset({"items", "minItems", "maxItems", "uniqueItems"}),
}
"""What may be said of a field, by its type."""
_OF_ALL: Final = frozenset({"type", "title", "description", "default", "examples"})
_OF_FORMS: Final = frozenset({"type", "properties", "required", "title", "description", "$schema"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elicitation:
    """A question of a server.

    `name` is unique in its call: `elicit`, then `elicit.2` and so on. `requested_schema` is the JSON
    Schema of what a person who accepts fills in; it is None where they are sent to `url` instead. `saved`
    is what has to be handed to the call when it is made again.
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
    """What a person answered. `content` is what they filled in; only who accepts fills something in.

    `declined` is why nobody was asked at all.
    """

    action: Action
    content: Mapping[str, Any] | None = None
    declined: str | None = None

    @classmethod
    def of(cls, answer: Json) -> Answer:
        """What was answered to `elicitation_question`, held against its schema already."""
        return cls(action=answer["action"], content=answer.get("content"))


Ask: TypeAlias = Callable[[Elicitation], Awaitable[Answer]]
"""Gives the answer to an elicitation, or raises to give the call up, as `Suspended` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A question as the server put it, before it has a name."""

    message: str
    requested_schema: Json = None
    url: str | None = None

    @property
    def digest(self) -> str:
        return sha256([self.message, self.requested_schema, self.url])


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Where a call stands whose server keeps nothing: its state, and what it wants, by its own keys."""

    state: str | None
    wanted: Mapping[str, Wanted]


class Record:
    """The questions of one call, over all the times that it is made."""

    def __init__(self, server: str, tool: str, saved: Json = None) -> None:
        known = isinstance(saved, Mapping) and saved.get("format") == _FORMAT
        self._server, self._tool = server, tool
        self._asked: list[tuple[str, str]] = (
            [(name, digest) for name, digest in saved["asked"]] if known else []
        )
        self._answers: dict[str, Answer] = {}
        self._used: set[str] = set()
        self._round = saved["round"] if known else None
        self.handshake: bool = known and saved["handshake"]
        """The tool asks with a request of its own, so the call needs a protocol of 2025."""

    def resumed(self) -> tuple[Round, Mapping[str, str]] | None:
        """Where the call stood when it was given up, with the names of what was asked there; None if it
        has to be made from its beginning. All that was asked before is behind it.
        """
        if self._round is None:
            return None
        self._used = {name for name, _ in self._asked}
        wanted = self._round["wanted"]
        return (
            Round(
                state=self._round["state"],
                wanted={
                    key: Wanted(
                        message=each["message"], requested_schema=each["schema"], url=each["url"]
                    )
                    for key, each in wanted.items()
                },
            ),
            {key: each["name"] for key, each in wanted.items()},
        )

    def again(self) -> None:
        """The call is made from its beginning: what it asks now may have been asked before."""
        self._used.clear()
        self._round = None

    def at(self, round_: Round) -> Mapping[str, str]:
        """The server has come to this point, and keeps nothing itself. The names of what it asks there.

        Raises McpToolError if something cannot be asked.
        """
        names = {key: self.named(each) for key, each in round_.wanted.items()}
        self._round = {
            "state": round_.state,
            "wanted": {
                key: {
                    "name": names[key],
                    "message": each.message,
                    "schema": each.requested_schema,
                    "url": each.url,
                }
                for key, each in round_.wanted.items()
            },
        }
        kept = size(self._round)
        if kept > _LARGEST_ROUND:
            message = (
                f"the tool {self._tool!r} of {self._server} wants {kept} bytes kept while it asks, and "
                f"{_LARGEST_ROUND} can be kept"
            )
            raise McpToolError("bad_elicitation", message)
        return names

    def named(self, wanted: Wanted) -> str:
        """The name of a question that is asked now. Raises McpToolError if it is one too many."""
        told = f"the tool {self._tool!r} of {self._server}"
        if (
            fault := why_not_json([wanted.message, wanted.requested_schema, wanted.url])
        ) is not None:
            message = f"{told} asks a person what is no JSON: {fault}"
            raise McpToolError("bad_elicitation", message)
        digest = wanted.digest
        for name, known in self._asked:
            if known == digest and name not in self._used:
                self._used.add(name)
                return name
        if len(self._asked) >= _MOST:
            message = f"{told} asks more than {_MOST} questions in one call: that is the most"
            raise McpToolError("bad_elicitation", message)
        number = len(self._asked) + 1
        name = "elicit" if number == 1 else f"elicit.{number}"
        self._asked.append((name, digest))
        self._used.add(name)
        return name

    async def answered(self, name: str, wanted: Wanted, ask: Ask) -> Answer:
        """The answer to a question. In one go at a call, nothing is asked twice, and what is no question
        that a server may ask is declined.
        """
        if name in self._answers:
            return self._answers[name]
        try:
            form = _asked_form(wanted)
        except ValueError as error:
            reason = str(error)[:_LONGEST_REASON]
            _log.warning(
                "server=%s tool=%s | declined what it asks: %r", self._server, self._tool, reason
            )
            self._answers[name] = Answer(action="decline", declined=reason)
        else:
            elicitation = Elicitation(
                name=name,
                server=self._server,
                tool=self._tool,
                message=wanted.message,
                requested_schema=form,
                url=wanted.url,
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
    process: str | None = None,
) -> Interrupt:
    """The elicitation as a question to a person, of the kind `elicitation`.

    An answer is `{action: "accept", content}`, `{action: "decline"}` or `{action: "cancel"}`: to decline
    or to cancel is an answer. The server's text is the prompt, as it is. `reason` has the server and the
    tool, and the `url` that the person is to open, if there is one; nothing is filled in then.
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
        process=process,
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
    }


def _asked_form(wanted: Wanted) -> Json:
    """What a person who accepts has to fill in, or None where they are sent to an address.

    Raises ValueError for what a server may not ask.
    """
    shown = size([wanted.message, wanted.requested_schema, wanted.url])
    if shown > _LARGEST:
        message = f"it takes {shown} bytes, and a question may take {_LARGEST}"
        raise ValueError(message)
    if wanted.url is None:
        form = without_lookaround(_form(wanted.requested_schema))
        schema_of(_response(form))
        return form
    if not wanted.url.startswith(("https://", "http://")):
        message = (
            f"the address {wanted.url[:200]!r} begins with neither https:// nor http://, so nobody is "
            "sent there"
        )
        raise ValueError(message)
    return None


def _form(schema: Mapping[str, Json]) -> dict[str, Json]:
    """A form as the protocol restricts it: a flat object. What else its fields say is left out, as is
    usual there, unless it has parts of its own.
    """
    fields = schema.get("properties")
    if not isinstance(fields, Mapping) or schema.get("type") != "object":
        message = "a form is an object with properties; send people to an address for what is more"
        raise ValueError(message)
    found = _known("the form", schema, _OF_FORMS)
    return {**found, "properties": {name: _field(name, each) for name, each in fields.items()}}


def _field(name: str, given: Json) -> Json:
    told = f"the field {name!r}"
    kind = given.get("type") if isinstance(given, Mapping) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        message = (
            f"{told} is of the type {kind!r}; a form has fields of {', '.join(sorted(_FIELDS))}: send "
            "people to an address for what is more"
        )
        raise ValueError(message)
    field = _known(told, given, _FIELDS[kind] | _OF_ALL)
    if kind == "array":
        items = given.get("items")
        if not isinstance(items, Mapping) or not {"enum", "anyOf"} & items.keys():
            message = f"{told} is a list, but of no choices: its items have neither enum nor anyOf"
            raise ValueError(message)
        field["items"] = items = _known(
            f"{told}, items", items, frozenset({"type", "enum", "anyOf"})
        )
    holder = field["items"] if kind == "array" else field
    choices = holder.get(_CHOICES.get(kind, ""))
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, Mapping) or not isinstance(choice.get("const"), str):
            message = f"{told} has the choice {str(choice)[:200]!r}, which is no text with a title"
            raise ValueError(message)  # noqa: TRY004 - as all that is wrong with a form
        _known(f"{told}, a choice", choice, frozenset({"const", "title", "description"}))
    return field


def _known(told: str, given: Mapping[str, Json], allowed: frozenset[str]) -> dict[str, Json]:
    for key, value in given.items():
        if key not in allowed and isinstance(value, Mapping | list):
            message = f"{told} has {key!r}, which a form may not have"
            raise ValueError(message)
    return {key: value for key, value in given.items() if key in allowed}

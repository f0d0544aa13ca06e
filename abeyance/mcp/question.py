"""What a server asks a person in the middle of a tool call, and how it is asked again.

A person may need days, and no call stays open for days. So the call is given up when a server asks, and
made again when there is an answer; what the server asks then is answered from the record. A question is
known again by the digest of its message and of the schema of its answer, and the first of equal ones is
the first that was asked. One that is different is a new question, under a new name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from abeyance.core.canonical import Json, sha256, size, why_not_json
from abeyance.mcp.faults import McpToolError
from abeyance.nodes.interrupts import Interrupt
from abeyance.values.schema import schema_of

Action: TypeAlias = Literal["accept", "decline", "cancel"]

_FORMAT: Final = 1
"""Of `saved`. What was saved in another one is not read: the call starts from its beginning."""
_LARGEST: Final = 50_000
"""In bytes: what is shown to a person stays in the run's state for as long as the question is open."""
_LARGEST_ROUND: Final = 200_000
_MOST: Final = 20
"""Questions that one call may ask: a server that never has enough would keep people busy for ever."""


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
    """What a person answered. `content` is what they filled in; only who accepts fills something in."""

    action: Action
    content: Mapping[str, Any] | None = None

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
        """The name of a question that is asked now. Raises McpToolError if it cannot be asked."""
        told = f"the tool {self._tool!r} of {self._server}"
        _check(wanted, told)
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
        """The answer to a question. In one go at a call, nothing is asked twice."""
        if name not in self._answers:
            elicitation = Elicitation(
                name=name,
                server=self._server,
                tool=self._tool,
                message=wanted.message,
                requested_schema=wanted.requested_schema,
                url=wanted.url,
                saved={
                    "format": _FORMAT,
                    "asked": [list(each) for each in self._asked],
                    "round": self._round,
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


def _response(schema: Mapping[str, Json]) -> Json:
    requested = dict(schema)
    # References in it are counted from the root of the document, which is ours from here on.
    named = {key: requested.pop(key) for key in ("$defs", "definitions") if key in requested}
    return {
        **_CONSENT,
        "properties": {"action": _ACTIONS, "content": requested},
        "if": {"properties": {"action": {"const": "accept"}}},
        "then": {"required": ["content"]},
        **named,
    }


def _check(wanted: Wanted, told: str) -> None:
    shown = [wanted.message, wanted.requested_schema, wanted.url]
    fault = why_not_json(shown)
    if fault is None and size(shown) > _LARGEST:
        fault = f"{size(shown)} bytes, and a question may have {_LARGEST}"
    if fault is None and wanted.url is not None:
        if not wanted.url.startswith(("https://", "http://")):
            fault = (
                f"the address {wanted.url[:200]!r}, which begins with neither https:// nor http://"
            )
    elif fault is None:
        try:
            schema_of(_response(wanted.requested_schema))
        except ValueError as error:
            fault = str(error)
    if fault is not None:
        message = f"{told} asks a person what cannot be asked: {fault}"
        raise McpToolError("bad_elicitation", message[:2_000])

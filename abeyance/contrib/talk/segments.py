"""The events of a run as parts of a conversation: the pure half of the protocols of user interfaces.

A user interface follows a *segment* of a run: from its own input to the next questions, or to the end.
`Segment` turns each event of the run, with what was `Found` about it, into parts, which every protocol
writes in its own form. Text comes while a model speaks, and all of it when its turn is over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from abeyance import live_text, views
from abeyance.agents.agent import MODEL_NODE, is_turn
from abeyance.agents.output import FINAL_RESULT
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.contrib.talk.parts import (
    Call,
    Ended,
    Notice,
    Opened,
    Part,
    Result,
    StepBegan,
    StepEnded,
    Subagent,
    SubagentBegan,
    SubagentEnded,
    TextBegan,
    TextDelta,
    TextEnded,
    Turn,
    Usage,
    Waiting,
)
from abeyance.core.address import Address
from abeyance.core.json import Json
from abeyance.core.state import Status
from abeyance.live_text import LiveText

_ID_CHARS: Final = 24
_BETWEEN: Final = "#"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The data that was read about an event, which itself has no values.

    `items` is the transcript of its agent, `result` the status and the content of its tool call, and
    `interrupts` are the open questions.
    """

    items: Sequence[TranscriptItem] = ()
    result: tuple[str, Json] | None = None
    interrupts: Sequence[views.InterruptView] = ()


Needs: TypeAlias = Literal["transcript", "result", "interrupts"]

_NEEDS: Final[Mapping[str, Needs]] = {
    "model.turn": "transcript",
    "tool.finished": "result",
    "tool.failed": "result",
    "interrupt.opened": "interrupts",
    "interrupt.reopened": "interrupts",
    "interrupt.changed": "interrupts",
}
_ENDS: Final = frozenset({"run.awaiting_input", *views.TERMINAL_EVENTS})
_STEP_ENDS: Final = frozenset({"node.finished", "node.retrying", "node.failed", "node.stopped"})
_NOTICES: Final = {
    "run.paused": "paused",
    "run.resumed": "resumed",
    "node.blocked": "blocked",
    "node.unblocked": "unblocked",
    "message.undelivered": "undelivered",
}
_USER: Final = "user."


def needs(event: views.Event) -> Needs | None:
    """Return the data that an event needs."""
    return _NEEDS.get(event.type)


def may_end(event: views.Event) -> bool:
    """Return whether a segment may be over after this event. The view of the run then decides."""
    return event.type in _ENDS


def agent_of(address: str | None) -> str | None:
    """Return the address of the innermost agent around an address, if there is one."""
    segments = Address.parse(address).segments if address else ()
    last = max((at for at, segment in enumerate(segments) if segment.type == "agent"), default=None)
    return None if last is None else str(Address(segments[: last + 1]))


def call_of(address: str | None) -> tuple[str, str] | None:
    """Return the tool and the id of a call by its address, None for another address."""
    segments = Address.parse(address).segments if address else ()
    last = segments[-1] if segments else None
    if last is None or last.type != "tool" or last.ordinal is None:
        return None
    return last.id, last.ordinal


def message_id(run_id: str, *parts: object) -> str:
    """Return the id of a message that is made of parts of a run: the same each time."""
    text = "\n".join([run_id, *map(str, parts)])
    return f"msg-{sha256(text.encode()).hexdigest()[:_ID_CHARS]}"


def calls_of(item: TranscriptItem) -> tuple[Call, ...]:
    """Return the calls of a response, without the one that is the output of the agent."""
    return tuple(
        Call(id=call.call_id, tool=call.tool, arguments=call.arguments)
        for call in item.calls
        if call.tool != FINAL_RESULT
    )


def subagent_of(agent: str | None) -> Subagent | None:
    """Return the agent at an address, if another agent has called it."""
    segments = Address.parse(agent).segments if agent else ()
    around = agent_of(str(Address(segments[:-1]))) if len(segments) > 1 else None
    if agent is None or around is None:
        return None
    calls = [segment.ordinal for segment in segments[:-1] if segment.type == "tool"]
    outer = subagent_of(around)
    return Subagent(
        id=agent,
        name=segments[-1].id,
        parent=None if outer is None else outer.id,
        call_id=calls[-1] if calls else None,
    )


def as_text(value: Json) -> str:
    """Return a value as text: a string unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def why(view: views.RunView) -> tuple[str, str]:
    """Return the code and the reason of a run that failed or was halted."""
    if view.error is not None:
        return view.error.code, view.error.message
    return view.status, view.reason or f"the run is {view.status}"


def shown_id(question: views.InterruptView) -> str:
    """Return the id under which a question is shown. It has the digest, so it binds an answer to it."""
    return shown_as(question.id, question.digest)


def shown_as(id_: str, digest: str | None) -> str:
    """Return the id under which a question with a digest is shown."""
    return id_ if digest is None else f"{id_}{_BETWEEN}{digest}"


def parted_id(shown: str) -> tuple[str, str]:
    """Split the id under which a question is shown into its own id and its digest, "" without one."""
    id_, _, digest = shown.partition(_BETWEEN)
    return id_, digest


def answerable(interrupts: Sequence[views.InterruptView]) -> tuple[views.InterruptView, ...]:
    """Return the open questions that can be answered directly."""
    return tuple(each for each in interrupts if each.status == "open" and each.is_root_cause)


@dataclass(slots=True, kw_only=True)
class Segment:
    """Makes the parts of one segment from the events after its beginning, in order."""

    run_id: str
    _steps: dict[str, str] = field(default_factory=dict)
    _agents: dict[str, Subagent] = field(default_factory=dict)
    _results: set[tuple[str | None, str]] = field(default_factory=set)
    _usage: dict[str, Usage] = field(default_factory=dict)
    _texts: dict[str, LiveText] = field(default_factory=dict)
    _ids: dict[str, list[str]] = field(default_factory=dict)
    is_over: bool = False

    def skip(self, event: views.Event) -> None:
        """Take note of an event before the segment: a result that was sent is not sent again."""
        agent, call = agent_of(event.address), call_of(event.address)
        if needs(event) == "result" and agent is not None and call is not None:
            self._results.add((agent, call[1]))

    def opened(self, view: views.RunView) -> list[Part]:
        """Return the reasons why nothing happens in the run when the segment begins."""
        notices: list[Part] = []
        if view.pause is not None:
            notices.append(_notice("paused", reason=view.pause.reason, by=view.pause.actor))
        notices += [
            _notice("blocked", code=each.code, message=each.message, address=each.address)
            for each in view.blocked
        ]
        return notices

    def closed(self, view: views.RunView, interrupts: Sequence[views.InterruptView]) -> list[Part]:
        """Return the end of the segment, if the run as it is now waits for people or has ended."""
        return list(self._end(view, interrupts))

    def on(self, event: views.Event, found: Found) -> list[Part]:
        return list(self._parts(event, found))

    def hear(self, delta: views.ModelDelta) -> list[Part]:
        """Return the parts of a model's text while the model speaks."""
        return list(self._heard(delta))

    def _heard(self, delta: views.ModelDelta) -> Iterator[Part]:
        agent, new = agent_of(delta.address), delta.data
        if agent is None:
            return
        seen = self._texts.get(agent)
        now = LiveText(turn=new.turn, text=new.text, offset=new.offset)
        if (more := live_text.news(seen, now)) is None:
            return
        if seen is not None and more.turn == seen.turn and more.offset >= seen.end:
            if more.offset > seen.end:
                # Some text was missed. The end of the turn has all of it.
                return
        elif seen is not None:
            yield from self._silence(agent)
        if more.text and (agent in self._texts or not more.offset):
            yield from self._began(delta.address)
            yield from self._say(agent, more)

    def _say(self, agent: str, new: LiveText) -> Iterator[Part]:
        seen, by = self._texts.get(agent), speaker_of(agent)
        if seen is None:
            ids = self._ids.setdefault(agent, [])
            again = [len(ids)] if ids else []
            ids.append(message_id(self.run_id, agent, new.turn, *again))
            yield TextBegan(id=ids[-1], subagent=by)
        self._texts[agent] = replace(new, text=(seen.text if seen else "") + new.text, offset=0)
        yield TextDelta(id=self._ids[agent][-1], text=new.text, subagent=by)

    def _silence(self, agent: str) -> Iterator[Part]:
        if self._texts.pop(agent, None) is not None:
            yield TextEnded(id=self._ids[agent][-1], subagent=speaker_of(agent))

    def _parts(self, event: views.Event, found: Found) -> Iterator[Part]:
        yield from self._began(event.address)
        match event.type:
            case "node.started":
                yield from self._step(event.address)
            case type_ if type_ in _STEP_ENDS:
                # The event of a finished turn follows, and ends its text.
                if type_ != "node.finished" and is_turn(event.address or ""):
                    yield from self._silence(agent_of(event.address) or "")
                yield from self._step_ended(event.address)
            case "model.turn":
                yield from self._turn(event, found.items)
            case "tool.finished" | "tool.failed":
                yield from self._result(event, found)
            case type_ if needs(event) == "interrupts":
                id_ = event.data.get("id")
                if asked := tuple(each for each in answerable(found.interrupts) if each.id == id_):
                    yield Opened(interrupts=asked)
            case type_ if type_ in _NOTICES:
                about = {**event.data, "address": event.address, "by": event.actor}
                yield _notice(_NOTICES[type_], **about)
            case type_ if type_.startswith(_USER):
                yield Notice(name=type_, value=event.data.get("data"))
            case _:
                pass

    def _began(self, address: str | None) -> Iterator[Part]:
        agent = subagent_of(agent_of(address))
        if agent is not None and agent.id not in self._agents:
            outer = agent.parent
            yield from self._began(outer)
            self._agents[agent.id] = agent
            yield SubagentBegan(agent=agent)

    def _step(self, address: str | None) -> Iterator[Part]:
        name = _step_name(address)
        if name is not None and name not in self._steps:
            self._steps[name] = name
            yield StepBegan(name=name)

    def _step_ended(self, address: str | None) -> Iterator[Part]:
        name = _step_name(address)
        if name is not None and self._steps.pop(name, None) is not None:
            yield StepEnded(name=name)

    def _turn(self, event: views.Event, items: Sequence[TranscriptItem]) -> Iterator[Part]:
        agent, number = agent_of(event.address), event.data.get("turn")
        self._count(event)
        subagent = None if agent is None else speaker_of(agent)
        for item in items:
            if item.turn != number or agent is None:
                continue
            if item.role == "tool" and (agent, str(item.call_id)) not in self._results:
                # No event has the result of an agent's call, or a result given by a person.
                yield self._read(agent, item, items, subagent)
            if item.role == "assistant":
                said = LiveText(turn=item.turn, text=item.text or "")
                seen = self._texts.get(agent)
                rest = live_text.news(seen, said)
                if seen is not None and rest is not None and rest.offset < seen.end:
                    yield from self._silence(agent)
                if rest is not None and rest.text:
                    yield from self._say(agent, rest)
                id_ = message_id(self.run_id, agent, item.turn)
                if agent in self._texts:
                    id_ = self._ids[agent][-1]
                    yield from self._silence(agent)
                yield Turn(id=id_, calls=calls_of(item), subagent=subagent)
        if agent is not None:
            yield from self._silence(agent)
            self._ids.pop(agent, None)
        calls = [name for name in event.data.get("calls") or () if name != FINAL_RESULT]
        if not calls and agent in self._agents:
            yield SubagentEnded(agent=self._agents.pop(agent))

    def _read(
        self,
        agent: str,
        item: TranscriptItem,
        items: Sequence[TranscriptItem],
        subagent: str | None,
    ) -> Result:
        call_id = str(item.call_id)
        self._results.add((agent, call_id))
        return Result(
            id=message_id(self.run_id, agent, "result", call_id),
            call_id=call_id,
            tool=item.tool or "",
            status=item.outcome or "success",
            content=item.result,
            call=_call(items, call_id),
            subagent=subagent,
        )

    def _result(self, event: views.Event, found: Found) -> Iterator[Part]:
        agent, call = agent_of(event.address), call_of(event.address)
        if agent is None or call is None or (agent, call[1]) in self._results:
            return
        tool, call_id = call
        status = str(event.data.get("outcome") or "failed")
        content: Json = event.data.get("message")
        if found.result is not None:
            status, content = found.result
        self._results.add((agent, call_id))
        yield Result(
            id=message_id(self.run_id, agent, "result", call_id),
            call_id=call_id,
            tool=tool,
            status=status,
            content=content,
            call=_call(found.items, call_id),
            subagent=speaker_of(agent),
        )

    def _count(self, event: views.Event) -> None:
        used, model = event.data.get("usage") or {}, str(event.data.get("model"))
        before = self._usage.get(model, Usage(model=model, input_tokens=0, output_tokens=0))
        self._usage[model] = Usage(
            model=model,
            input_tokens=before.input_tokens + int(used.get("input_tokens") or 0),
            output_tokens=before.output_tokens + int(used.get("output_tokens") or 0),
        )

    def _end(
        self, view: views.RunView, interrupts: Sequence[views.InterruptView]
    ) -> Iterator[Part]:
        asked = answerable(interrupts)
        waits = view.status == Status.AWAITING_INPUT and bool(asked)
        if not waits and view.ended_at is None:
            if view.status == Status.AWAITING_INPUT:
                # Only held answers are left, which can still be taken back.
                yield _notice("held")
            return
        self.is_over = True
        for agent_id in [*self._texts]:
            yield from self._silence(agent_id)
        yield from (StepEnded(name=name) for name in self._steps)
        self._steps.clear()
        for agent in reversed(self._agents.values()):
            own = tuple(each.id for each in asked if agent_of(each.address) == agent.id)
            yield SubagentEnded(agent=agent, is_waiting=waits, interrupts=own)
        self._agents.clear()
        usage = tuple(self._usage.values())
        if waits:
            yield Waiting(view=view, interrupts=asked, usage=usage)
        else:
            yield Ended(view=view, usage=usage)


def _call(items: Sequence[TranscriptItem], call_id: str) -> Call | None:
    calls = [call for item in items for call in calls_of(item) if call.id == call_id]
    return calls[-1] if calls else None


def speaker_of(agent: str) -> str | None:
    """Return the agent if it is a subagent; None if it speaks for the run itself."""
    return None if subagent_of(agent) is None else agent


def _notice(status: str, **about: Json) -> Notice:
    known = {name: value for name, value in about.items() if value is not None}
    return Notice(name="abeyance", value={"status": status, **known})


def _step_name(address: str | None) -> str | None:
    """Return the path of nodes to a visit; None within a subagent, whose steps are its own."""
    if subagent_of(agent_of(address)) is not None or not address:
        return None
    segments = Address.parse(address).segments[1:]
    if len(segments) > 1 and segments[-2].type == "agent" and segments[-1].id == MODEL_NODE:
        # The step of a turn has the name of its agent.
        segments = segments[:-1]
    return "/".join(
        segment.id if segment.ordinal is None else f"{segment.id}:{segment.ordinal}"
        for segment in segments
    )

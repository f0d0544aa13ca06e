"""A thread: a conversation between a user interface and a graph, whatever the protocol.

Only the last message and the answers that a user interface posts count. The message starts a run of the
conversation, or steers the open one. The id of the run is made from the message, so posting the message
again starts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, TypeAlias

from fastapi import Path

from abeyance import commands, views
from abeyance.agents import tool_results
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.api.auth import RESPONDS, STARTS, Credentials, require
from abeyance.api.dependencies import Backend, hash_of, run_of_interrupt, unknown_interrupt
from abeyance.api.rights import may_read, vouched
from abeyance.api.routers import runs
from abeyance.api.schemas import StartBody
from abeyance.authoring.graph import Graph
from abeyance.client.run import TemporalRun
from abeyance.contrib.talk.parts import Part
from abeyance.contrib.talk.posted import Posted, UserMessage, unrounded
from abeyance.contrib.talk.segments import Found, Segment, agent_of, call_of, may_end, needs
from abeyance.core import mailbox, policy
from abeyance.core.json import Json
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.records.claims import EXCLUSIVE

_PAGE: Final = 1_000
_PAUSE: Final = 0.2
_MAX_EARLIER: Final = 50
_SHOWN_CHARS: Final = 100
_END_SECONDS: Final = 10.0
"""How long a run that reads no more messages may take to end."""
_ARRIVALS: Final = {
    "message.queued": "message_id",
    "interrupt.answered": "id",
    "interrupt.voted": "id",
    "interrupt.held": "id",
}
"""The events by which an input arrives, and the field with the id of its message or question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The beginning of a segment: after the event `after` of a run. `is_new`: the request has posted
    something to the run. `segment` has seen the events before its beginning.
    """

    conversation_id: str
    segment: Segment
    after: str | None = None
    is_new: bool = True

    @property
    def run_id(self) -> str:
        return self.segment.run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The conversation of a run: its transcripts and unread results of calls, by agent, and its unread
    messages.
    """

    transcripts: Mapping[str, Sequence[TranscriptItem]] = field(default_factory=dict)
    results: Mapping[str, Mapping[str, Mapping[str, Json]]] = field(default_factory=dict)
    unread: Sequence[views.MessageView] = ()


GraphName: TypeAlias = Annotated[
    str, Path(description="The name of a graph with an agent.", examples=["refund"])
]


def graph_of(backend: Backend, name: str) -> Graph:
    """Return a graph that a user interface can talk to. Raises `unknown_graph`."""
    graph = backend.graph(name)
    if graph.chat_field is not None:
        return graph
    names = [each.name for each in backend.graphs.values() if each.chat_field is not None]
    raise Refusal(
        Code.UNKNOWN_GRAPH,
        f"The graph {truncate(name, _SHOWN_CHARS)!r} takes no messages, because none of its agents names "
        f"a field as its input: choose one of {', '.join(sorted(names)) or 'none'}.",
        graphs=sorted(names),
    )


class Thread:
    """The conversation of one request with a graph, for a caller."""

    def __init__(self, backend: Backend, credentials: Credentials, graph: Graph) -> None:
        self._backend = backend
        self._client = backend.connection.client
        self._credentials = credentials
        self._caller = credentials.principal
        self._reads = credentials.reads
        self._graph = graph

    def run_id_of(self, conversation_id: str, message_id: str) -> str:
        """Return the id of the run that a message of a conversation starts."""
        parts = (self._client.task_queue, self._graph.name, conversation_id, message_id)
        return f"run-{hash_of('thread', *parts)}"

    async def take(self, posted: Posted) -> Place:
        """Answer, steer or start as posted, and return the place where the segment begins.

        Raises the refusals of the calls of the API that do the same.
        """
        if posted.answers:
            return await self._answered(posted)
        run_id, message = await self.open_run(posted.conversation_id), posted.message
        if message is None:
            if run_id is None:
                run_id = await self._latest(posted)
            return await self._now(run_id, posted, is_new=False)
        if run_id is None:
            read_by = await self._reader_of(posted, message)
            if read_by is not None:
                return await self._again(read_by, posted, {message.id})
            return await self._started(posted, message)
        if await self._has_started(run_id, posted):
            return await self._again(run_id, posted, {message.id})
        place = await self._now(run_id, posted, is_new=True)
        if await self._steer(run_id, message):
            return place
        return await self._again(run_id, posted, {message.id})

    async def open_run(self, conversation_id: str) -> str | None:
        """Return the open run of the conversation. Raises `ambiguous_run` if there are several, and
        `conversation_busy` if the run is of another graph.
        """
        found = await self._client.conversations.runs(
            conversation_id, session_type=EXCLUSIVE, reads=self._reads
        )
        if not found:
            return None
        if len(found) > 1:
            raise Refusal(
                Code.AMBIGUOUS_RUN,
                f"The conversation {conversation_id!r} has {len(found)} active runs of agents: a message "
                "can only go to one.",
                conversation_id=conversation_id,
                runs=found[:_MAX_EARLIER],
                actual=len(found),
            )
        (run_id,) = found
        if await self._client.run(run_id).graph_of() != self._graph.name:
            raise Refusal(
                Code.CONVERSATION_BUSY,
                f"The conversation {conversation_id!r} has an active run of another graph, {run_id!r}: "
                "use another conversation.",
                conversation_id=conversation_id,
                runs=[run_id],
            )
        return run_id

    async def _now(
        self, run_id: str, posted: Posted, *, is_new: bool, arrived: Collection[str] = ()
    ) -> Place:
        """Return the place after the latest event of a run, or after the event with which the last of
        `arrived` has arrived: ids of messages and questions.
        """
        segment, after, missing = Segment(run_id=run_id), None, {*arrived}
        is_there = False
        while not is_there:
            events, then = await self._client.feed.page(run_id, after, _PAGE)
            is_there = then is None or not events
            for event in events:
                segment.skip(event)
                after = event.id
                missing.discard(str(event.data.get(_ARRIVALS.get(event.type, ""))))
                if arrived and not missing:
                    is_there = True
                    break
        conversation_id = posted.conversation_id
        return Place(conversation_id=conversation_id, segment=segment, after=after, is_new=is_new)

    async def _again(self, run_id: str, posted: Posted, arrived: Collection[str]) -> Place:
        """Return the place of an input posted before: of a message, or of answers to these questions."""
        if posted.repeats and self._is_first(run_id, posted):
            conversation_id, segment = posted.conversation_id, Segment(run_id=run_id)
            return Place(conversation_id=conversation_id, segment=segment, is_new=False)
        return await self._now(
            run_id, posted, is_new=False, arrived=arrived if posted.repeats else ()
        )

    def _is_first(self, run_id: str, posted: Posted) -> bool:
        """Return whether the run is the one that the message starts."""
        message = posted.message
        return message is not None and run_id == self.run_id_of(posted.conversation_id, message.id)

    async def _has_started(self, run_id: str, posted: Posted) -> bool:
        """Return whether the message has started the run. Raises `message_conflict` if a message with
        the same id and another text has.
        """
        message = posted.message
        if message is None or not self._is_first(run_id, posted):
            return False
        if not await self._client.run(run_id).was_started_by(hash_of(message.text)):
            raise mailbox.conflict(message.id)
        return True

    async def _reader_of(self, posted: Posted, message: UserMessage) -> str | None:
        """Return the latest run of the conversation, if that run read the message before it ended."""
        run_id = await self._latest_of(posted)
        if run_id is None:
            return None
        transcripts = (await self.said(run_id)).transcripts.values()
        is_read = any(item.message_id == message.id for items in transcripts for item in items)
        return run_id if is_read else None

    async def _latest_of(self, posted: Posted) -> str | None:
        for message_id in reversed(posted.earlier[-_MAX_EARLIER:]):
            run_id = self.run_id_of(posted.conversation_id, message_id)
            if await self._exists(run_id):
                return run_id
        return None

    async def _latest(self, posted: Posted) -> str:
        """Return the latest run, by now ended, that a message has started. Raises `no_active_run`."""
        if (run_id := await self._latest_of(posted)) is not None:
            return run_id
        raise Refusal(
            Code.NO_ACTIVE_RUN,
            f"The conversation {truncate(posted.conversation_id, _SHOWN_CHARS)!r} has no active run: "
            "send a message of the user, which starts one.",
            conversation_id=posted.conversation_id[:_SHOWN_CHARS],
        )

    async def _exists(self, run_id: str) -> bool:
        try:
            labels = await self._client.run(run_id).labels()
        except Refusal:
            return False
        return self._reads.may_read(labels)

    async def _started(self, posted: Posted, message: UserMessage) -> Place:
        require(self._caller, STARTS)
        body = StartBody(
            graph=self._graph.name,
            input={self._graph.chat_field or "": message.text},
            run_id=self.run_id_of(posted.conversation_id, message.id),
            conversation_id=posted.conversation_id,
        )
        started = await runs.start(
            body,
            hash_of(message.text),
            caller=self._caller,
            backend=self._backend,
            reads=self._reads,
        )
        if not started.created:
            return await self._again(started.run_id, posted, {message.id})
        segment = Segment(run_id=started.run_id)
        return Place(conversation_id=posted.conversation_id, segment=segment)

    async def _steer(self, run_id: str, message: UserMessage) -> bool:
        """Send a message to a run, and return False if the run had it before."""
        require(self._caller, policy.STEER)
        order = commands.SteerMessage(
            message_id=message.id,
            text=message.text,
            sender=self._caller.subject,
            capabilities=self._caller.capabilities,
        )
        return not (await self._client.run(run_id).send_message(order)).duplicate

    async def _answered(self, posted: Posted) -> Place:
        require(self._caller, RESPONDS)
        run_id = await self._run_of_answers(posted)
        message = None if await self._has_started(run_id, posted) else posted.message
        if message is not None:
            require(self._caller, policy.STEER)
            self._refuse_too_long(message)
        run = self._client.run(run_id)
        asked = {each.id: each for each in await run.interrupts(status="all")}
        responses: dict[str, Json] = {}
        digests: dict[str, str] = {}
        for answer in posted.answers:
            if (question := asked.get(answer.interrupt_id)) is None:
                raise unknown_interrupt(answer.interrupt_id)
            value = answer.value(question)
            if value is ... or (answer.is_history and question.status != "open"):
                continue
            responses[answer.interrupt_id] = unrounded(value, question)
            if answer.digest is not None:
                digests[answer.interrupt_id] = answer.digest
        place = await self._now(run_id, posted, is_new=True)
        if responses:
            order = commands.Respond(responses=responses, digests=digests, principal=self._caller)
            receipts = await run.respond_to(vouched(order, self._credentials))
            if all(receipt.replayed for receipt in receipts):
                place = await self._again(run_id, replace(posted, message=message), responses)
        if message is None:
            return place
        try:
            await self._steer(run_id, message)
        except Refusal as refusal:
            if refusal.code is not Code.NOT_RUNNING:
                raise
            # The answers have ended the run, and the message is for the next one.
            await run.wait(timeout=_END_SECONDS)
            return await self.take(replace(posted, answers=()))
        return place

    def _refuse_too_long(self, message: UserMessage) -> None:
        """Raise `invalid_message` for a message that no run reads, before the answers beside it count."""
        length, limit = len(message.text), self._backend.settings.max_message_length
        if length > limit:
            raise Refusal(
                Code.INVALID_MESSAGE,
                f"The message has {length} characters, and max_message_length allows {limit}. Shorten "
                "it, or send the answers without it.",
                message_id=message.id,
                limit=limit,
                actual=length,
            )

    async def _run_of_answers(self, posted: Posted) -> str:
        """Return the run that has asked all answered questions. Raises `unknown_interrupt`."""
        first = posted.answers[0].interrupt_id
        run_id = run_of_interrupt(first)
        for answer in posted.answers:
            if run_of_interrupt(answer.interrupt_id) != run_id:
                raise unknown_interrupt(answer.interrupt_id)
        if not await may_read(self._client, self._reads, run_id):
            raise unknown_interrupt(first)
        try:
            view = await self._client.run(run_id).view()
        except Refusal as refusal:
            raise unknown_interrupt(first) from refusal
        if (view.conversation_id, view.graph) != (posted.conversation_id, self._graph.name):
            raise unknown_interrupt(first)
        return run_id

    async def follow(self, place: Place) -> AsyncGenerator[Part, None]:
        """Yield the parts of the segment that begins at a place, up to its end.

        Raises the errors of the feed. Closing the generator does not end the run.
        """
        run = self._client.run(place.run_id)
        feed, segment, after = self._client.feed, place.segment, place.after
        is_first = True
        is_fresh = after is None and place.is_new
        while True:
            # The view is read before the events, and counts once no event before it is left.
            while not is_fresh:
                view, asked = await self._seen(run)
                events, _ = await feed.page(place.run_id, after, _PAGE)
                parts = segment.opened(view) if is_first else []
                for part in parts:
                    yield part
                is_first = False
                async for part in self._parts(run, segment, events):
                    yield part
                if not events:
                    for part in segment.closed(view, asked):
                        yield part
                    break
                after = events[-1].id
            if segment.is_over:
                return
            is_fresh, before = False, after
            async with aclosing(await feed.watched(place.run_id, after)) as latest:
                async for event in latest:
                    if isinstance(event, views.ModelDelta):
                        for part in segment.hear(event):
                            yield part
                        continue
                    after = event.id
                    async for part in self._parts(run, segment, [event]):
                        yield part
                    if may_end(event):
                        break
            if after == before:
                # The feed has ended without an event: do not look again at once.
                await asyncio.sleep(_PAUSE)

    async def _parts(
        self, run: TemporalRun, segment: Segment, events: Sequence[views.Event]
    ) -> AsyncGenerator[Part, None]:
        for event in events:
            for part in segment.on(event, await self._found(run, event)):
                yield part

    async def _seen(self, run: TemporalRun) -> tuple[views.RunView, list[views.InterruptView]]:
        view = await run.view()
        if view.ended_at is not None:
            return view, []
        return view, await run.interrupts()

    async def _found(self, run: TemporalRun, event: views.Event) -> Found:
        match needs(event):
            case None:
                return Found()
            case "interrupts":
                return Found(interrupts=await run.interrupts())
            case "transcript":
                return Found(items=await self._items(run, agent_of(event.address)))
            case "result":
                agent, call = agent_of(event.address), call_of(event.address)
                if agent is None or call is None:
                    return Found()
                result = await _result(run, agent, call[1])
                # Read the transcript afterwards: it has the results that the run no longer has.
                items = await self._items(run, agent)
                return Found(items=items, result=result or _read_result(items, call[1]))

    async def _items(self, run: TemporalRun, agent: str | None) -> list[TranscriptItem]:
        try:
            return await run.transcript(agent)
        except (Refusal, Unavailable, SettingsError):
            # This part of the conversation cannot be read now. The snapshot at the end has it.
            return []

    async def earlier(self, posted: Posted, place: Place) -> list[tuple[str, str]] | None:
        """Return the runs that the messages before this one have started, oldest first, each with the id
        of its message, and last the run of the place. None if there are too many to read.
        """
        ids = [*posted.earlier, *([] if posted.message is None else [posted.message.id])]
        if len(ids) > _MAX_EARLIER:
            return None
        by_run = {self.run_id_of(posted.conversation_id, id_): id_ for id_ in ids}
        others = [run_id for run_id in by_run if run_id != place.run_id]
        exist = await asyncio.gather(*map(self._exists, others))
        found = [run_id for run_id, exists in zip(others, exist, strict=True) if exists]
        return [(run_id, by_run.get(run_id, "")) for run_id in [*found, place.run_id]]

    async def said(self, run_id: str, *, is_open: bool = False) -> Said:
        """Return the readable conversation of a run. An ended run has read every message."""
        run = self._client.run(run_id)
        said = Said()
        with suppress(Refusal, Unavailable, SettingsError):
            said = Said(transcripts=await run.transcripts())
        if not is_open:
            return said
        with suppress(Refusal, Unavailable):
            said = replace(said, unread=await run.messages())
        with suppress(Refusal, Unavailable):
            said = replace(said, results=await run.call_results())
        return said


async def _result(run: TemporalRun, agent: str, call_id: str) -> tuple[str, Json] | None:
    """Return the status and the content of a call's result that is in no transcript yet."""
    try:
        result = (await run.call_results()).get(agent, {}).get(call_id)
    except (Refusal, Unavailable):
        return None
    return None if result is None else tool_results.to_model_text(result)


def _read_result(items: Sequence[TranscriptItem], call_id: str) -> tuple[str, Json] | None:
    """Return the status and the content of a call's result that its model has read."""
    for item in reversed(items):
        if item.role == "tool" and item.call_id == call_id:
            return item.outcome or "success", item.result
    return None

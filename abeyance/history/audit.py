"""The audit of a run: its events, with what people were shown, answered, wrote and edited.

An event has hashes and ids, never an answer. The rest is read from the orders in the history: an answer
is that of an accepted order if it has the hash of the event, so that nothing is said that the run did not
accept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient

from abeyance import names, views
from abeyance.core.json import Json, rfc3339, sha256
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal
from abeyance.history.audit_chain import END, OPEN
from abeyance.history.event_translation import HistoryState
from abeyance.history.reader import Histories, HistoryWalk
from abeyance.storage.converter import UNREADABLE

GAP: Final = "gap"
"""The type of a line in place of events that Temporal has deleted before they were archived."""

ADMIN: Final = "admin"
"""The capability to read every answer."""
_REMEMBERED: Final = 10_000
"""How many orders without an event are remembered."""
_MESSAGE: Final = ("text", "parts", "metadata", "action", "params", "target")


def capability_of(data: Mapping[str, Any], shown: Mapping[str, Any]) -> str | None:
    """Return the capability that a question takes, None for none, by its event and what it showed.

    What was shown may lack it, as anything that is too large. Then only who may do everything sees the
    answer.
    """
    if not shown or "requested_capability" in shown.get("omitted", ()):
        shown = {"requested_capability": names.ANY_CAPABILITY}
    capability: str | None = data.get("capability", shown.get("requested_capability"))
    return capability


class Orders:
    """What was sent to a run, until its events refer to it.

    `capabilities` are what the questions take, by their ids.
    """

    def __init__(self, capabilities: Mapping[str, str | None] | None = None) -> None:
        self._capabilities = dict(capabilities or {})
        self._answers: dict[str, Json] = {}
        self._messages: deque[Mapping[str, Any]] = deque(maxlen=_REMEMBERED)
        self._edits: deque[Mapping[str, Any]] = deque(maxlen=_REMEMBERED)

    def add(self, name: str, order: Any) -> None:
        """Remember an order: the name of the signal or update, and its argument."""
        if not isinstance(order, Mapping):
            return
        match name:
            case "respond":
                responses = order.get("responses")
                answers = responses.values() if isinstance(responses, Mapping) else ()
                for answer in (*answers, order.get("response")):
                    self._remember(answer)
            case "steer" | "send_message":
                self._messages.append(order)
            case "edit_values":
                self._edits.append(order)
            case _:
                pass

    def content(self, event: views.Event) -> dict[str, Json]:
        """Return the content of the line of an event: with the answer, the message or the patch that it
        refers to, if it is known.
        """
        return {
            **event.model_dump(mode="json", exclude={"data"}, exclude_none=True),
            "data": event.data,
            **self._details(event),
        }

    def _details(self, event: views.Event) -> dict[str, Json]:
        match event.type:
            case "interrupt.opened" | "interrupt.changed" | "interrupt.revised":
                shown = dict(event.shown or {})
                if "default" in shown:
                    self._remember(shown["default"])
                self._capabilities[event.data["id"]] = capability_of(event.data, shown)
                return {"shown": shown}
            case "interrupt.answered" | "interrupt.voted" | "interrupt.held":
                hashed = event.data["answer_sha256"]
                # Of a question whose opening is not known, only who may do everything sees the answer.
                capability = self._capabilities.get(event.data["id"], names.ANY_CAPABILITY)
                known = {"answer": self._answers[hashed]} if hashed in self._answers else {}
                return {"capability": capability, **known}
            case "message.queued" | "message.rejected":
                message_id = event.data["message_id"]
                sent = _taken(self._messages, lambda order: order.get("message_id") == message_id)
                said = {name: sent[name] for name in _MESSAGE if sent.get(name)}
                return {"message": said} if said else {}
            case "run.values_edited":
                fields = sorted(event.data["fields"])
                sent = _taken(self._edits, lambda order: sorted(order.get("patch", ())) == fields)
                return {"patch": sent["patch"]} if sent else {}
            case _:
                return {}

    def _remember(self, answer: Json) -> None:
        self._answers[sha256(answer)] = answer
        if len(self._answers) > _REMEMBERED:
            del self._answers[next(iter(self._answers))]


def _taken(
    orders: deque[Mapping[str, Any]], fits: Callable[[Mapping[str, Any]], bool]
) -> Mapping[str, Any]:
    """Remove and return the first order that fits; empty without one."""
    found = next(filter(fits, orders), None)
    if found is None:
        return {}
    orders.remove(found)
    return found


class AuditHistories(Histories):
    """The histories of a run, with the contents of the lines of its audit by the ids of events.

    `execution` is the one in which `contents` came to the present.
    """

    def __init__(
        self,
        temporal: TemporalClient,
        task_queue: str,
        *,
        patience: float,
        capabilities: Mapping[str, str | None] | None = None,
    ) -> None:
        super().__init__(temporal, task_queue, patience=patience)
        self.execution = ""
        self.contents: dict[str, dict[str, Json]] = {}
        self._orders = Orders(capabilities)

    async def _translated(
        self, event: HistoryEvent, state: HistoryState
    ) -> tuple[list[views.Event], HistoryState]:
        name, payloads = _order_in(event)
        if payloads:
            converter = self._source.converter(state.run_id)
            # A signal that nobody can read: the run has refused it, and its event says so.
            with suppress(*UNREADABLE):
                (order,) = await converter.decode(payloads)
                self._orders.add(name, order)
        events, after = await super()._translated(event, state)
        # Now, because a later order may have the same message id.
        self.contents |= {each.id: self._orders.content(each) for each in events}
        return events, after

    def content(self, event: views.Event) -> dict[str, Json]:
        """Return the content of the line of an event that was read."""
        # Events that were held back have no order.
        return self.contents.get(event.id) or self._orders.content(event)


def _order_in(event: HistoryEvent) -> tuple[str, list[Payload]]:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
            sent = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
            return sent.name, [*sent.args.payloads[:1]]
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            signal = event.workflow_execution_signaled_event_attributes
            return signal.signal_name, [*signal.input.payloads[:1]]
        case _:
            return "", []


async def contents(
    histories: AuditHistories, run_id: str, after: str | None, *, execution: str = ""
) -> AsyncGenerator[dict[str, Json], None]:
    """Yield the contents of the lines of a run after a cursor, to the present; None begins with the
    oldest event, and `execution` with the beginning of a later history.

    A line `gap` is in place of what is no longer kept. Raises the refusals `unknown_run` and
    `invalid_body`, and Unavailable.
    """
    walk = HistoryWalk(histories, run_id, after, execution=execution)
    is_complete = after is not None
    while not (walk.has_ended or walk.is_at_present):
        try:
            events = await walk.step()
        except Refusal as refusal:
            if refusal.code is not Code.GONE:
                raise
            walk, is_complete = HistoryWalk(histories, run_id, None), False
            continue
        for event in events:
            if not is_complete and event.type != "run.started":
                yield {"type": GAP, "run_id": run_id, "time": rfc3339(event.time)}
            is_complete = True
            yield histories.content(event)
        histories.contents.clear()
    histories.execution = walk.execution


def closing(
    newest: str,
    view: views.RunView,
    settled: Iterable[views.InterruptView],
    *,
    execution: str,
    now: datetime,
) -> dict[str, Json]:
    """Return the content of the last line of an audit. `newest` is the type of the line before it."""
    return {
        "type": END if newest in views.TERMINAL_EVENTS else OPEN,
        "run_id": view.run_id,
        "time": rfc3339(view.ended_at or now),
        "execution": execution,
        "run": view.model_dump(mode="json", exclude_defaults=True),
        "interrupts": [each.model_dump(mode="json", exclude_defaults=True) for each in settled],
    }


def redacted(content: Mapping[str, Json], reader: Principal) -> Mapping[str, Json]:
    """Return the content of a line without answers to questions whose capability the reader lacks."""
    if "interrupts" in content:
        return {**content, "interrupts": [_hidden(each, reader) for each in content["interrupts"]]}
    if "answer" not in content or reader.may(content["capability"]):
        return content
    return {**content, "answer": None, "redacted": True}


def _hidden(interrupt: Mapping[str, Json], reader: Principal) -> Mapping[str, Json]:
    if reader.may(interrupt.get("requested_capability")):
        return interrupt
    return {name: it for name, it in interrupt.items() if name != "answer"}

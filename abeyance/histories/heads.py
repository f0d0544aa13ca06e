"""Where the transcripts of a run's agents are, read from the run's history: no worker is asked.

A run itself knows best, and tells it to whoever asks, and in its closing record. This is for a run that
cannot be asked and has left no record: because no worker is up, or because an operator ended it. Its
newest history begins with what was carried over from the one before, and has since the outcome of every
turn of a model, which names the end of the transcript then. What people have undone since is not
known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter

from abeyance.core.address import Address
from abeyance.core.recall import FIELD
from abeyance.histories.runlog import mapping
from abeyance.histories.source import Source, unknown_run
from abeyance.histories.translate import sources
from abeyance.histories.visitlog import is_visit
from abeyance.temporal.retry import NotFound


async def heads(
    temporal: TemporalClient, task_queue: str, run_id: str, *, patience: float
) -> dict[str, str]:
    """The references of a run's transcripts, by the addresses of the agents.

    Raises the refusal `unknown_run`, and Unavailable.
    """
    source = Source(temporal, task_queue, patience=patience)
    found = _Heads(source.converter(run_id))
    token = b""
    try:
        newest = await source.execution(run_id)
        while True:
            page = await source.history(run_id, newest.id, token, wait=False)
            for event in page.history.events:
                await found.read(event)
            token = page.next_page_token
            if not token:
                return found.by_address
    except NotFound:
        raise unknown_run(run_id) from None


class _Heads:
    """What the events of a history have told so far."""

    def __init__(self, converter: DataConverter) -> None:
        self.by_address: dict[str, str] = {}
        self._converter = converter
        self._turns: dict[int, str] = {}
        """The addresses of agents, by the events that scheduled turns of their models."""

    async def read(self, event: HistoryEvent) -> None:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                begun = event.workflow_execution_started_event_attributes
                self._carried(await self._decoded(begun.input.payloads))
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                name = event.activity_task_scheduled_event_attributes.activity_type.name
                (address,) = await self._decoded(sources(event)) or (None,)
                if is_visit(name, address) and (agent := _around(str(address))) is not None:
                    self._turns[event.event_id] = agent
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                completed = event.activity_task_completed_event_attributes
                if (agent := self._turns.get(completed.scheduled_event_id)) is not None:
                    report = mapping(await self._decoded(sources(event)))
                    self._learn(agent, (report.get("outcome") or {}).get("patch"))
            case _:
                pass

    def _carried(self, given: list[Any]) -> None:
        """What a run begins with: `start`, the graph, the values of its scopes, and the snapshot."""
        values, snapshot = mapping(given[2:]), mapping(given[3:])
        for address, ref in (snapshot.get("transcripts") or {}).items():
            self._learn(address, {FIELD: ref})
        for address, fields in values.items():
            if Address.parse(address).is_agent:
                self._learn(address, fields)

    def _learn(self, agent: str, patch: Any) -> None:
        if isinstance(patch, Mapping) and isinstance(head := patch.get(FIELD), str):
            self.by_address[agent] = head

    async def _decoded(self, payloads: Any) -> list[Any]:
        return await self._converter.decode(payloads) if payloads else []


def _around(address: str) -> str | None:
    """The agent that a visit is directly in; None if it is in none."""
    around = Address.parse(address).parent
    return str(around) if around is not None and around.is_agent else None

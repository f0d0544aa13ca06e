"""A Temporal server in this process, as far as workers and clients can see it.

The server keeps workflow executions, hands out workflow and activity tasks, and fires timers. Random
draws decide how long everything takes and what is lost. Features that do not affect a run (visibility,
namespaces, versions, child workflows) are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio.api.workflowservice.v1 import StartWorkflowExecutionRequest

from abeyance.storage.blobs import MemoryBlobs
from tests.simulation.activity import Activity
from tests.simulation.chance import Chance
from tests.simulation.clock import VirtualLoop
from tests.simulation.execution import Execution
from tests.simulation.records import Records
from tests.simulation.resets import Reset, reset
from tests.simulation.tasks import Attempt

if TYPE_CHECKING:
    from tests.simulation.worker import Worker

_DELAYS: Final = (0.001, 0.0, 0.003, 0.02, 0.15, 0.6, 2.5, 12.0)
_REWOUND: Final = 7
"""One of this many schedules has rewinds, by its seed, so that the others stay as they were."""
_RETRIED: Final = 5
"""One of this many schedules has retries; some of these have rewinds too."""
_LIKELY: Final = (16, 6, 6, 4, 3, 2, 1, 0.3)


class Broken(AssertionError):
    """Raised when a promise is broken."""


class Timer:
    """A timer by the clock of the server, which may jump."""

    def __init__(self, server: Server, due: datetime, then: Callable[[], None]) -> None:
        self._server, self._due, self._then = server, due, then
        self._is_over = False
        self._arm()

    def _arm(self) -> None:
        left = (self._due - self._server.now()).total_seconds()
        self._handle = self._server.loop.call_later(max(left, 0.0), self._ring)

    def _ring(self) -> None:
        if (self._due - self._server.now()).total_seconds() > 1e-6:
            self._arm()
            return
        self.cancel()
        self._then()

    def clock_jumped(self) -> None:
        if not self._is_over:
            self._handle.cancel()
            self._arm()

    def cancel(self) -> None:
        self._is_over = True
        self._handle.cancel()
        self._server.timers.pop(id(self), None)


class Server:
    """All executions, and the records' database. `log` tells a reader what happened. If the server
    `is_sealed`, its clients and workers require encryption.
    """

    def __init__(self, loop: VirtualLoop, chance: Chance, *, is_sealed: bool = False) -> None:
        self.loop = loop
        self.chance = chance
        self.log: list[str] = []
        self.skew = timedelta()
        self.chains: dict[str, list[Execution]] = {}
        self.workers: list[Worker] = []
        self.activities: dict[bytes, Activity] = {}
        self.timers: dict[int, Timer] = {}
        self.idle: list[Callable[[], None]] = []
        self.committed: Callable[[Execution, Attempt], None] = lambda *_: None
        self.is_calm = False
        self.is_sealed = is_sealed
        self.has_retries = chance.origin % _RETRIED == 3
        self.has_rewinds = chance.origin % _REWOUND == 4
        self.records = Records(self)
        self.blobs = MemoryBlobs()
        self.forgotten: set[str] = set()
        self.resets: list[Reset] = []
        self.rewound: Callable[[Execution], None] = lambda _: None
        self._numbers = 0

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def now(self) -> datetime:
        return self.loop.wall() + self.skew

    def note(self, text: str) -> None:
        self.log.append(f"{self.loop.time():9.3f}  {text}")

    def delay(self) -> float:
        """Draw how many seconds something takes."""
        return 0.001 if self.is_calm else self.chance.choices(_DELAYS, _LIKELY)[0]

    def later(self, seconds: float, then: Callable[..., object], *args: Any) -> None:
        self.loop.call_later(seconds, then, *args)

    def at(self, due: datetime, then: Callable[[], None]) -> Timer:
        """Call `then` at a time of the server's clock."""
        timer = Timer(self, due, then)
        self.timers[id(timer)] = timer
        return timer

    def jump(self, seconds: float) -> None:
        """Move the server's clock."""
        self.note(f"the server's clock jumps by {seconds:g} s")
        self.skew += timedelta(seconds=seconds)
        for timer in [*self.timers.values()]:
            timer.clock_jumped()

    def worker(self) -> Worker | None:
        """Draw one of the workers that are up."""
        up = [each for each in self.workers if each.is_up]
        return self.chance.choice(up) if len(up) > 1 else up[0] if up else None

    def worker_came(self) -> None:
        waiting, self.idle = self.idle, []
        for each in waiting:
            self.later(self.delay(), each)

    def execution(self, workflow_id: str, run_id: str = "") -> Execution | None:
        """Return the latest execution of a workflow, or the one with the id `run_id`."""
        chain = self.chains.get(workflow_id, [])
        if run_id:
            return next((each for each in chain if each.run_id == run_id), None)
        return chain[-1] if chain else None

    def takes_nothing_of(self, token: bytes) -> bool:
        """Return whether an attempt belongs to an execution that has ended."""
        run_id = token.decode().split()[0]
        chains = (each for chain in self.chains.values() for each in chain)
        return any(each.run_id == run_id and not each.is_open for each in chains)

    def start(self, request: StartWorkflowExecutionRequest) -> Execution:
        """Start an execution of a workflow, also after an earlier one has ended."""
        before = self.execution(request.workflow_id)
        execution = Execution(
            self,
            workflow_id=request.workflow_id,
            type=request.workflow_type.name,
            queue=request.task_queue.name,
            input=request.input.payloads,
            memo=dict(request.memo.fields),
            attributes=dict(request.search_attributes.indexed_fields),
            request_id=request.request_id,
            before=before,
            is_anew=True,
        )
        self.chains.setdefault(request.workflow_id, []).append(execution)
        execution.arrived([], 0)
        return execution

    def reset(self, base: Execution, event: int, reason: str, request_id: str) -> Execution:
        """Reset a run, and return the execution that continues it."""
        execution, about = reset(base, event, reason, request_id)
        self.resets.append(about)
        self.rewound(execution)
        return execution

"""The dependencies of routes: the backend, ids and keys of a request, and long polling."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin

from fastapi import Depends, Header, Path, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator

from abeyance.api.auth import Caller, Credentials, CredentialsDep, Tokens
from abeyance.api.oidc import OidcClient
from abeyance.api.rights import Reads, require_readable
from abeyance.api.sessions import Sessions
from abeyance.authoring.graph import Graph
from abeyance.client import Client
from abeyance.core.policy import Principal, ReadRights
from abeyance.core.text import truncate
from abeyance.duration import seconds
from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.notifications.config import Notifications
from abeyance.settings import Settings
from abeyance.util import KEY, RUN_ID_RULE, checked_key, invalid

T = TypeVar("T")

KEY_HEADER: Final = "Idempotency-Key"
MOST_STREAMS_OF_ONE: Final = 20
MOST_STREAMS: Final = 500
"""The most open streams of one principal, and of all principals together, in a process."""

_STARTUP_SECONDS: Final = 1.0
"""How long the startup waits for Temporal before the service accepts requests without it."""
_RECONNECT_SECONDS: Final = 1.0
_DISCONNECT_CHECK_SECONDS: Final = 1.0
_MAX_LISTED: Final = 20
_SHOWN_CHARS: Final = 100
_RUN_ID_OF_KEY: Final = re.compile("run-[0-9a-f]{32}")
_INTERRUPT_ID: Final = re.compile(rf"(?P<run_id>{RUN_ID_RULE[1:-1]})\.[0-9a-f]{{16}}")
_logger = logging.getLogger("abeyance.api")


class TemporalConnection:
    """The client of the API, or the reason why there is none yet.

    A client reconnects by itself. Until the first connection, `keep_connecting` retries.
    """

    def __init__(self, client: Client | None = None) -> None:
        self._client = client
        self._error = "Temporal has not been reached yet: retry in a moment"

    @property
    def client(self) -> Client:
        """The client. Raises Unavailable while there is none."""
        if self._client is None:
            raise Unavailable(self._error)
        return self._client

    @asynccontextmanager
    async def keep_connecting(self, settings: Settings) -> AsyncIterator[None]:
        """Connect in the background, unless there is a client."""
        if self._client is not None:
            yield
            return
        connecting = asyncio.create_task(self._connect(settings))
        try:
            done, _ = await asyncio.wait({connecting}, timeout=_STARTUP_SECONDS)
            for task in done:
                task.result()
            yield
        finally:
            connecting.cancel()
            await asyncio.wait({connecting})

    async def _connect(self, settings: Settings) -> None:
        while True:
            try:
                self._client = await Client.connect(settings=settings)
                await _warn_of_foreign_runs(self._client)
            except Unavailable as error:
                if self._error != str(error):
                    _logger.warning("code=%s | %s", Code.UNAVAILABLE, error)
                self._error = str(error)
                await asyncio.sleep(_RECONNECT_SECONDS)
            else:
                return


async def _warn_of_foreign_runs(client: Client) -> None:
    """Warn if nothing but this service keeps its callers from the runs of other deployments."""
    try:
        count = await client.runs.count_of_others()
    except SettingsError:
        # Credentials that cannot list runs cannot see the runs of others either.
        return
    if count:
        _logger.warning(
            "namespace=%s task_queue=%s | the credentials of this service can also read %d runs of "
            "other task queues: the API hides them, but deployments that do not trust each other need "
            "separate namespaces",
            client.temporal.namespace,
            client.task_queue,
            count,
        )


class StreamPlaces:
    """Counts the open streams, by principal."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def one_of(self, subject: str) -> Iterator[None]:
        """Hold a place for a stream. Raises `too_many_runs` if a principal or the process has none."""
        for taken, limit in (
            (self._open[subject], MOST_STREAMS_OF_ONE),
            (self._open.total(), MOST_STREAMS),
        ):
            if taken >= limit:
                raise Refusal(
                    Code.TOO_MANY_RUNS,
                    f"{taken} streams are open, and the limit is {limit} ({MOST_STREAMS_OF_ONE} of one "
                    "principal): close one, or read pages.",
                    limit=limit,
                )
        self._open[subject] += 1
        try:
            yield
        finally:
            self._open[subject] -= 1
            if not self._open[subject]:
                del self._open[subject]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The parts that all requests of one application share. None of them belongs to a run.

    `stopping` is set when the process gets a signal to stop: long polls then return, and streams end.
    """

    settings: Settings
    graphs: Mapping[str, Graph]
    tokens: Tokens
    connection: TemporalConnection
    sessions: Sessions
    oidc: OidcClient | None = None
    notifications: Notifications | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    streams: StreamPlaces = field(default_factory=StreamPlaces)

    def graph(self, name: str) -> Graph:
        """Return a graph by its name. Raises `unknown_graph`, which lists the names."""
        if (graph := self.graphs.get(name)) is not None:
            return graph
        names = sorted(self.graphs)[:_MAX_LISTED]
        more = f" and {len(self.graphs) - len(names)} more" if len(self.graphs) > len(names) else ""
        raise Refusal(
            Code.UNKNOWN_GRAPH,
            f"There is no graph {truncate(name, 200)!r}: choose one of {', '.join(names)}{more}.",
            graphs=names,
        )


async def _backend(request: Request) -> Backend:
    backend: Backend = request.app.state.backend
    return backend


BackendDep = Annotated[Backend, Depends(_backend)]


async def _client(backend: BackendDep) -> Client:
    return backend.connection.client


ClientDep = Annotated[Client, Depends(_client)]
"""The client. A route that depends on it responds with 503 while Temporal cannot be reached."""
CONNECTED: Final = Depends(_client)
"""For a route that needs the client later: respond with 503 while Temporal cannot be reached."""


async def _run_id(
    run_id: Annotated[str, Path(description="The id of a run.", examples=["refund-4711"])],
    reads: Reads,
    backend: BackendDep,
) -> str:
    check_run_id(run_id)
    if reads.is_bound:
        await require_readable(backend.connection.client, reads, run_id)
    return run_id


def check_run_id(run_id: str) -> None:
    """Raise `unknown_run` for an id that no run can have, without asking Temporal."""
    if re.fullmatch(RUN_ID_RULE, run_id) is None:
        raise Refusal(
            Code.UNKNOWN_RUN,
            f"There is no run {truncate(run_id, _SHOWN_CHARS)!r}: this is not a valid run id.",
            run_id=run_id[:_SHOWN_CHARS],
        )


RunId = Annotated[str, Depends(_run_id)]
"""The run id of a path. An invalid id is an unknown run, as is a run that the caller may not see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptPath:
    """The interrupt id of a path, and the run id that it contains."""

    id: str
    run_id: str


async def _interrupt_id(
    interrupt_id: Annotated[
        str,
        Path(description="The id of an interrupt.", examples=["refund-4711.b276f6238dab3ba5"]),
    ],
    reads: Reads,
    backend: BackendDep,
) -> InterruptPath:
    run_id = run_of_interrupt(interrupt_id)
    if reads.is_bound:
        await require_readable(backend.connection.client, reads, run_id)
    return InterruptPath(id=interrupt_id, run_id=run_id)


InterruptId = Annotated[InterruptPath, Depends(_interrupt_id)]
"""The interrupt id of a path. An invalid id is an unknown interrupt. Its run is checked like `RunId`."""


def run_of_interrupt(id_: str) -> str:
    """Return the run id that an interrupt id contains. Raises `unknown_interrupt` for any other text."""
    match = _INTERRUPT_ID.fullmatch(id_)
    if match is None:
        raise unknown_interrupt(id_)
    return match["run_id"]


def unknown_interrupt(id_: str) -> Refusal:
    """Return the refusal of an id that no interrupt has."""
    shown = id_[:_SHOWN_CHARS]
    return Refusal(
        Code.UNKNOWN_INTERRUPT,
        f"There is no interrupt {shown!r}: list the interrupts of its run to see their ids.",
        interrupt_id=shown,
    )


async def _key(
    key: Annotated[
        str | None,
        Header(
            alias=KEY_HEADER,
            description="Makes retries safe: a second request with the same key has no further effect. "
            "1 to 200 visible ASCII characters.",
            examples=["7f3c1b52"],
            json_schema_extra={"pattern": f"^{KEY.pattern}$"},
        ),
    ] = None,
) -> str | None:
    return checked_key(key, {"pointer": f"/{KEY_HEADER.lower()}", "in": "header"})


Key = Annotated[str | None, Depends(_key)]
"""The idempotency key of the request."""
VALID_KEY: Final = Depends(_key)
"""For a route that is idempotent anyway: accept a key, and only validate it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that changes something: its caller, the backend, its key, and the caller's credentials."""

    caller: Principal
    backend: Backend
    key: str | None
    credentials: Credentials

    @property
    def client(self) -> Client:
        """The client. Raises Unavailable while Temporal cannot be reached."""
        return self.backend.connection.client

    @property
    def reads(self) -> ReadRights:
        """The runs that the caller may see."""
        return self.credentials.reads


async def _call(caller: Caller, backend: BackendDep, key: Key, credentials: CredentialsDep) -> Call:
    return Call(caller=caller, backend=backend, key=key, credentials=credentials)


CallDep = Annotated[Call, Depends(_call)]


def keyed(
    call: Call, run_id: str | None, digest: Callable[[], str]
) -> tuple[str | None, str | None]:
    """Return the id of a run that a call starts, and its `request` as in `Client.runs.start`.

    With a key and without a `run_id` the id is made from the key. `digest` returns the hash of the body.
    Raises `invalid_run_id` for a `run_id` of the form that is reserved for ids made from keys.
    """
    if run_id is not None and _RUN_ID_OF_KEY.fullmatch(run_id):
        raise Refusal(
            Code.INVALID_RUN_ID,
            f"The run id {run_id!r} is reserved: ids of the form run- and 32 hexadecimal digits are made "
            f"from an {KEY_HEADER}. Choose an id of another form, or send a key and no id.",
            rule=f"not {_RUN_ID_OF_KEY.pattern}",
        )
    if call.key is None:
        return run_id, None
    subject = call.caller.subject
    if run_id is None:
        # The id identifies the key already.
        return run_id_of(call.client.task_queue, subject, call.key), digest()
    return run_id, f"{hash_of(subject, call.key)}.{digest()}"


def run_id_of(task_queue: str, subject: str, key: str) -> str:
    """Return the id of the run that a principal starts under a key.

    It differs for each principal, and for each deployment of the namespace.
    """
    return f"run-{hash_of(task_queue, subject, key)}"


def hash_of(*parts: str) -> str:
    """Return the hash that replaces a principal's key in stored data."""
    # As a list, so that the border between subject and key counts.
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


async def _known_parameters(request: Request, _caller: Caller) -> None:
    # This runs after authentication: unknown callers learn nothing about the parameters.
    await _declared_parameters(request)


async def _declared_parameters(request: Request) -> None:
    route = request.scope["route"]
    known = _query_parameters(route.dependant) if isinstance(route, APIRoute) else {}
    message = f"is not a parameter of this endpoint: use {', '.join(sorted(known)) or 'none'}"
    unknown = {name: message for name in request.query_params if name not in known}
    counts = Counter(name for name, _ in request.query_params.multi_items())
    repeated = {
        name: f"is there {counts[name]} times, and takes one value"
        for name, is_list in known.items()
        if counts[name] > 1 and not is_list
    }
    if faults := {**unknown, **repeated}:
        raise invalid(
            [
                {"pointer": f"/{name[:100]}", "message": message, "in": "query"}
                for name, message in [*faults.items()][:20]
            ]
        )


KNOWN_PARAMETERS: Final = Depends(_known_parameters)
"""Refuse query parameters that the route does not declare, and repeated ones that take one value."""
DECLARED_PARAMETERS: Final = Depends(_declared_parameters)
"""Do the same without authentication."""


def _query_parameters(dependant: Dependant) -> dict[str, bool]:
    """Return the query parameters of a route, each with whether it is a list and may be repeated."""
    found: dict[str, bool] = {}
    for parameter in dependant.query_params:
        model = parameter.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            for name, field_ in model.model_fields.items():
                found[field_.alias or name] = _is_list(field_.annotation)
        else:
            found[parameter.alias] = _is_list(model)
    for part in dependant.dependencies:
        found |= _query_parameters(part)
    return found


def _is_list(annotation: Any) -> bool:
    # The second test is for optional lists, such as `frozenset[str] | None`.
    return get_origin(annotation) in (list, frozenset, tuple) or any(
        map(_is_list, get_args(annotation))
    )


def _wait_seconds(value: Any) -> float:
    # All values of a query are text, even a plain number of seconds.
    text = str(value).strip()
    length = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else seconds(text)
    if not 0 <= length < math.inf:
        message = f"{truncate(text, 100)!r} is not a duration: write 30s, 2m or PT30S"
        raise ValueError(message)
    return length


WaitSeconds: TypeAlias = Annotated[
    float, BeforeValidator(_wait_seconds, json_schema_input_type=str)
]
Wait: TypeAlias = Annotated[
    WaitSeconds | None,
    Query(
        description="How long to wait for the effect: ISO 8601, `30s`, or seconds. The service caps it "
        "at its `default_timeout`.",
        examples=["PT30S"],
    ),
]


class ServiceStopping(Exception):
    """The service stops before a long poll has a result."""


async def long_poll(
    request: Request, work: Coroutine[Any, Any, T], *, stopping: asyncio.Event | None = None
) -> T | None:
    """Return the result of the work, or None if the caller disconnects first.

    Raises ServiceStopping once `stopping` is set.
    """
    task = asyncio.create_task(work)
    stop = asyncio.create_task((stopping or asyncio.Event()).wait())
    try:
        while not task.done():
            await asyncio.wait(
                {task, stop},
                timeout=_DISCONNECT_CHECK_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not task.done() and stop.done():
                raise ServiceStopping
            if not task.done() and await request.is_disconnected():
                return None
        return task.result()
    finally:
        task.cancel()
        stop.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task, stop})


async def sleep_unless(stopping: asyncio.Event, length: float) -> None:
    """Sleep for `length` seconds, or until the event is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(length):
            await stopping.wait()

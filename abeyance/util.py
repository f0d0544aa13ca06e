"""Small helpers: loopback hosts, imports by name, bounded concurrency, ids.

The command line imports this module, so it imports no library.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import ipaddress
import re
import sys
import traceback
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar
from urllib.parse import quote

from abeyance.core.text import HALVES, LONGEST_ID, truncate
from abeyance.errors import Code, Refusal

TASK_QUEUE: Final = "abeyance"
"""The default task queue."""
API_VERSION: Final = "0.1"
PROBLEM_TYPE: Final = "urn:abeyance:problem:"
"""The prefix of the `type` of every problem document of the API; the code follows it."""


def is_loopback(host: str) -> bool:
    """Return True if a host (without a port) is a loopback name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ImportStringError(Exception):
    """A module or attribute does not exist; the message names it."""


def import_module_named(name: str) -> ModuleType:
    """Import a module, also from the current directory.

    Raise ImportStringError if it cannot be imported, and every other error of the module itself.
    """
    here = str(Path.cwd())
    # Last, so that a local folder does not shadow an installed package.
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        extra = None if error.name == name.partition(".")[0] else _lacking(error)
        remedy = f"install it, or put it below {here}"
        if extra is not None:
            remedy = f"pip install 'abeyance[{extra}]'"
        message = f"the module {name!r} cannot be imported ({error}): {remedy}"
        raise ImportStringError(message) from error


def without_attribute(module: ModuleType, name: str) -> str:
    """Return the text that a module lacks an attribute; with its file, if it hides a local module."""
    text = f"the module {module.__name__!r} has no attribute {name!r}"
    here, file = Path.cwd(), Path(getattr(module, "__file__", None) or "its interpreter")
    own = here / module.__name__.replace(".", "/")
    is_shadowed = own.is_dir() or own.with_name(f"{own.name}.py").is_file()
    if not is_shadowed or file.is_relative_to(here):
        return text
    return f"{text}: it comes from {file}; give the one below {here} a name of its own"


def import_string(reference: str) -> Any:
    """Import `module:name`; dots in the name lead into classes. Raise as `import_module_named` does."""
    module_name, _, path = reference.partition(":")
    value: Any = import_module_named(module_name)
    module = value
    for name in path.split("."):
        if not hasattr(value, name):
            raise ImportStringError(without_attribute(module, path))
        value = getattr(value, name)
    return value


_EXTRAS: Final = {
    "ag_ui": "agui",
    "agent_framework": "agent-framework",
    "apprise": "people",
    "boto3": "s3",
    "botocore": "s3",
    "clips": "rules",
    "holidays": "people",
    "langchain": "langgraph",
    "langgraph": "langgraph",
    "markdown_it": "people",
    "mcp": "agents",
    "nh3": "people",
    "opentelemetry": "otel",
    "pydantic_ai": "agents",
    "standardwebhooks": "people",
    "strands": "strands",
}
_ADAPTERS: Final = "abeyance.adapters."
"""Each module in this package has the name of the extra that installs its framework."""


def extra_of(module: str | None) -> str | None:
    """Return the extra of this package that installs a module; None if none does."""
    return _EXTRAS.get((module or "").partition(".")[0])


def _lacking(error: ImportError) -> str | None:
    """Return the extra without which a module cannot be imported; None if no extra is the reason."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(_ADAPTERS):
            # The framework's module may have any name, such as `agents`.
            return module.removeprefix(_ADAPTERS).replace("_", "-")
    return extra_of(error.name)


T = TypeVar("T")
R = TypeVar("R")


async def gather_limited(
    items: Iterable[T], work: Callable[[T], Awaitable[R]], *, at_once: int = 10
) -> list[R]:
    """Return the results of `work` in the order of `items`, with at most `at_once` running.

    The first error cancels the rest, and is raised.
    """
    numbered = list(enumerate(items))
    results: dict[int, R] = {}
    waiting = iter(numbered)

    async def worker_loop() -> None:
        for number, item in waiting:
            results[number] = await work(item)

    workers = [asyncio.create_task(worker_loop()) for _ in range(min(at_once, len(numbered)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [results[number] for number, _ in numbered]


def as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return several names, or only one, as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def without_none(**members: Any) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


RUN_ID_RULE: Final = rf"^[A-Za-z0-9_-]{{1,{LONGEST_ID}}}$"
_MOST_LISTED = 50
_LONGEST_STORED: Final = 255
"""The most bytes of an id that every store of Temporal can hold."""


def is_exact(number: float, text: str) -> bool:
    """Return whether a number equals the number in a text, with all its digits."""
    try:
        return Decimal(repr(number)) == Decimal(text)
    except InvalidOperation:
        return False


def checked_run_id(run_id: object) -> str:
    """Return a valid run id. Raise the Refusal `invalid_run_id` for any other."""
    if isinstance(run_id, str) and re.fullmatch(RUN_ID_RULE, run_id):
        return run_id
    text = str(run_id)
    invalid = sorted(set(re.findall(r"[^A-Za-z0-9_-]", text)))[:_MOST_LISTED]
    problem = f"it contains {', '.join(map(repr, invalid))}"
    if not isinstance(run_id, str):
        problem = "it is not a string"
    elif not invalid:
        problem = f"it has {len(text)} characters"
    raise Refusal(
        Code.INVALID_RUN_ID,
        f"{truncate(text, 100)!r} cannot name a run: {problem}. A run id has 1 to {LONGEST_ID} "
        "characters out of letters, digits, '_' and '-'.",
        invalid_characters=invalid,
        rule=RUN_ID_RULE,
    )


def invalid(errors: Sequence[Mapping[str, str]]) -> Refusal:
    """Return the refusal of an invalid request. `errors` are `{pointer, message}`."""
    text = "; ".join(f"{entry['pointer'] or 'the body'}: {entry['message']}" for entry in errors)
    return Refusal(Code.INVALID_BODY, f"The request is invalid: {text}.", errors=[*errors])


def require_in_order(since: datetime | None, until: datetime | None) -> None:
    """Raise `invalid_body` for a period that ends before it begins."""
    if since is not None and until is not None and since > until:
        message = f"{since.isoformat()} is after {until.isoformat()}, where the time ends"
        raise invalid([{"pointer": "/from", "message": message, "in": "query"}])


def checked_mapping(value: Any, place: str) -> dict[Any, Any]:
    """Return a mapping as a dict. Raises `invalid_body` at the pointer `place` for anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    raise _wrong_type(value, place, "object")


def checked_text(value: object, place: str) -> str:
    """Return a string. Raises `invalid_body` at the pointer `place` for anything else."""
    if isinstance(value, str) and not HALVES.search(value):
        return value
    raise _wrong_type(value, place, "string")


def _wrong_type(value: object, place: str, kind: str) -> Refusal:
    shown = truncate(repr(value), 80)
    return invalid([{"pointer": place, "message": f"input should be a valid {kind} (got {shown})"}])


KEY: Final = re.compile(rf"[!-~]{{1,{LONGEST_ID}}}")
"""An idempotency key, which a header of HTTP has to be able to hold."""


def checked_key(key: object, place: Mapping[str, str]) -> str | None:
    """Return a valid key, or None for None. Raises `invalid_body` at `place` for any other key."""
    if key is None or (isinstance(key, str) and KEY.fullmatch(key)):
        return key
    message = (
        f"{truncate(str(key), 100)!r} is not a key: use 1 to {LONGEST_ID} visible ASCII characters"
    )
    raise invalid([{**place, "message": message}])


def run_exists(run_id: str, status: str) -> Refusal:
    """Return the refusal of a start under the id of another open run."""
    return Refusal(
        Code.RUN_EXISTS,
        f"The run {run_id!r} is active, and another call started it. Choose another id.",
        run_id=run_id,
        run_status=status,
    )


def unknown_cursor(cursor: str, run_id: str | None = None) -> Refusal:
    """Return the refusal of a text that is not an event's id in a run, or without `run_id` in any run."""
    shown = truncate(cursor, 100)
    where = "the stream of this deployment" if run_id is None else f"the run {run_id!r}"
    return Refusal(
        Code.INVALID_BODY,
        f"{shown!r} is not a cursor of {where}: send the id of one of its events as it was received, or "
        "none to begin with the oldest.",
        cursor=shown,
        **without_none(run_id=run_id),
    )


def inbox_url(base: str, interrupt_id: str) -> str:
    """Return the address of a question in the inbox of the API at `base`."""
    return f"{base.rstrip('/')}/inbox#{quote(interrupt_id)}"


def notification_queue(task_queue: str) -> str:
    """Return the task queue of a deployment's notifications.

    It is not the queue of runs, so that receivers which do not answer hold up no node, and so that only
    workers with rules for notifications poll it.
    """
    return f"{task_queue}:notifications"


def notifications_prefix(run_id: str) -> str:
    """Return the prefix of the workflow ids of all notifications about a run."""
    return f"notification:{run_id}:"


def notification_workflow_id(run_id: str, execution: str, key: str) -> str:
    """Return the workflow id of the notification of one moment of an execution of a run.

    If stores cannot hold such an id, a hash replaces the execution and the key.
    """
    kind, about = notifications_prefix(run_id), f"{execution}:{key}"
    if len(f"{kind}{about}".encode()) > _LONGEST_STORED:
        about = hashlib.sha256(about.encode()).hexdigest()[:32]
    return f"{kind}{about}"


def generated_run_id(graph: str) -> str:
    """Return a new run id that begins with the graph's name."""
    return f"{re.sub('[^A-Za-z0-9_-]', '-', graph)}-{uuid.uuid4().hex[:12]}"

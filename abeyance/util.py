"""Which hosts are this machine itself: what listens there, nobody elsewhere can reach."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import ipaddress
import re
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import quote

from abeyance import wire
from abeyance.errors import Code, Refusal


def is_loopback(host: str) -> bool:
    """Whether a host, by its name or address and without a port, is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ImportStringError(Exception):
    """Nothing is there under a name; the text says what is missing."""


def import_module_named(name: str) -> ModuleType:
    """Import a module; it is also looked for in the current directory.

    Raises NotFound if there is none, and whatever the module itself raises.
    """
    here = str(Path.cwd())
    # Last, not first: a folder of the user's must not shadow an installed package.
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = (
            f"the module {name!r} cannot be imported ({error}); it is looked for among the installed "
            f"packages and below {here}"
        )
        raise ImportStringError(message) from error


def import_string(reference: str) -> Any:
    """What `module:name` names; dots in the name lead into classes. Raises like `module_named`."""
    module_name, _, path = reference.partition(":")
    found: Any = import_module_named(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise ImportStringError(f"the module {module_name!r} has no attribute {path!r}")
        found = getattr(found, name)
    return found


T = TypeVar("T")
R = TypeVar("R")


async def gather_limited(
    items: Iterable[T], work: Callable[[T], Awaitable[R]], *, at_once: int = 10
) -> list[R]:
    """What `work` gives for each item, in their order, with at most `at_once` under way.

    The first error stops the rest, and is raised as it is.
    """
    numbered = list(enumerate(items))
    found: dict[int, R] = {}
    waiting = iter(numbered)

    async def one_after_the_other() -> None:
        for number, item in waiting:
            found[number] = await work(item)

    workers = [
        asyncio.create_task(one_after_the_other()) for _ in range(min(at_once, len(numbered)))
    ]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [found[number] for number, _ in numbered]


_MOST_LISTED = 50
_LONGEST_PLAIN = 500
"""In bytes: Temporal's ids end at 1,000."""


def checked_run_id(run_id: str) -> str:
    """The id, if it may name a run. Raises `invalid_run_id` listing what is wrong with it."""
    if re.fullmatch(wire.RUN_ID_RULE, run_id):
        return run_id
    invalid = sorted(set(re.findall(r"[^A-Za-z0-9_-]", run_id)))[:_MOST_LISTED]
    told = f"it contains {', '.join(map(repr, invalid))}"
    if not invalid:
        told = f"it has {len(run_id)} characters"
    raise Refusal(
        Code.INVALID_RUN_ID,
        f"{run_id[:100]!r} cannot name a run: {told}. A run id has 1 to 256 characters out of "
        "letters, digits, '_' and '-'.",
        invalid_characters=invalid,
        rule=wire.RUN_ID_RULE,
    )


def conversation_workflow_id(task_queue: str, conversation_id: str) -> str:
    """The id of the workflow of a conversation, which no run can have, nor any other deployment."""
    # Quoted, the task queue has no colon, so it ends where the conversation's id begins.
    told = f"{quote(task_queue, safe='')}:{conversation_id}"
    if len(told.encode()) <= _LONGEST_PLAIN:
        return f"conversation:{told}"
    return f"conversation-sha256:{hashlib.sha256(told.encode()).hexdigest()}"


def generated_run_id(graph: str) -> str:
    """A new id that names its graph."""
    return f"{re.sub('[^A-Za-z0-9_-]', '-', graph)}-{uuid.uuid4().hex[:12]}"

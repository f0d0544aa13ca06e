"""The ids of runs, which are also those of their workflows in Temporal."""

from __future__ import annotations

import hashlib
import re
import uuid
from urllib.parse import quote

from abeyance import wire
from abeyance.errors import Code, Refusal

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

"""Random junk that no program of ours would send to a run, and limits that runs often reach."""

from __future__ import annotations

from random import Random

from abeyance.core.json import Json
from abeyance.core.state import Limits


def limits(random: Random) -> Limits:
    """Draw limits that runs often reach."""
    return Limits(
        max_queue_size=random.choice([1, 2, 3, 100]),
        max_message_length=50,
        allowed_actions=random.choice([(), ("mine",)]),
        max_parallel_visits=random.choice([1, 2, 50]),
        pause_timeout=random.choice([None, None, 0.4]),
        grace=random.choice([0.2, 2.0]),
        finally_timeout=5,
        task_bytes=random.choice([4_000, 1_000_000]),
        continue_as_new_after=random.choice([6, 12, 40, 1500]),
    )


def junk(random: Random) -> Json:
    """Draw a value that is not a valid order of any kind."""
    return random.choice(
        [
            *({"a": 1}, [], "text", 7, None, {"message_id": "", "text": "x"}),
            *({"text": "x", "k" * 300: 1}, {"ttl": "forever"}, {"timeout": -1}, {"mode": "later"}),
            *({"text": ["\ud800"]}, "\udfff", [{"deep": [[[[]]]]}], {"text": "x", "priority": 3}),
        ]
    )

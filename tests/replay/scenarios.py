"""All scenarios, by name. To add one, write a function in one of the files below and list it there."""

from __future__ import annotations

from typing import Final

from tests.replay import (
    agents,
    control,
    endings,
    flows,
    handovers,
    messages,
    notifications,
    questions,
    waits,
)
from tests.replay.stage import Scenario, named

SCENARIOS: Final[dict[str, Scenario]] = named(
    [
        *waits.SCENARIOS,
        *control.SCENARIOS,
        *messages.SCENARIOS,
        *flows.SCENARIOS,
        *endings.SCENARIOS,
        *handovers.SCENARIOS,
        *questions.SCENARIOS,
        *agents.SCENARIOS,
        *notifications.SCENARIOS,
    ]
)

SKIP_TIME: Final = frozenset({"deadline-after-days"})
"""Those that need a server on which a run's time can be moved on."""

"""All scenarios, by name. To add one, write a function in one of the files below and list it there."""

from __future__ import annotations

from typing import Final

from tests.replay import agents, control, questions, waits
from tests.replay.stage import Scenario, named

SCENARIOS: Final[dict[str, Scenario]] = named(
    [*waits.SCENARIOS, *questions.SCENARIOS, *control.SCENARIOS, *agents.SCENARIOS]
)

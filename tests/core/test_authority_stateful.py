"""Nothing begins behind a gate that nobody has answered for who may: held against random graphs with
gates, and whatever people without their capabilities, and with them, do to a run of them.
"""

from __future__ import annotations

from core_people import Peopled
from core_strategies import (
    VALUES,
    gated_graphs,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from abeyance.core.json import Json
from abeyance.core.spec import GraphSpec
from abeyance.core.state import Limits


class GatedRuns(Peopled):
    """A run of a graph with gates, of which nobody is in the way but those who stand at them."""

    @initialize(spec=gated_graphs(), values=VALUES, places=st.sampled_from([1, 50]))
    def a_run_begins(self, spec: GraphSpec, values: dict[str, Json], places: int) -> None:
        self.begin(spec, Limits(max_parallel_visits=places), values)

    @precondition(lambda self: self.state.finished)
    @rule(spec=gated_graphs(), values=VALUES, places=st.sampled_from([1, 50]))
    def another_run_begins(self, spec: GraphSpec, values: dict[str, Json], places: int) -> None:
        self.begin(spec, Limits(max_parallel_visits=places), values)


# The same examples each time: a change is not held against what another had not met.
GatedRuns.TestCase.settings = settings(
    # Twenty, and eighty in the profile `wide`.
    max_examples=settings().max_examples // 5,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
)
TestGatedRuns = GatedRuns.TestCase

"""All of the examples, to be served together: `abeyance dev examples.agents.graphs:graphs`."""

from __future__ import annotations

from typing import Final

from abeyance import Graph
from examples.agents import (
    approval,
    deep_agent,
    deleting_files,
    feedback_loop,
    follow_up,
    plan_execute_replan,
    review_and_edit,
    supervised_planning,
    supervisor,
    trusted_deleting,
)

graphs: Final[list[Graph]] = [
    approval.graph,
    review_and_edit.graph,
    feedback_loop.graph,
    follow_up.graph,
    supervisor.graph,
    plan_execute_replan.graph,
    deep_agent.graph,
    supervised_planning.graph,
    deleting_files.graph,
    trusted_deleting.graph,
]

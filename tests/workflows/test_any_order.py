"""Whatever is sent to a run, in any order, right or wrong: it ends, and keeps its promises."""

from __future__ import annotations

import pytest
from any_order import Program
from kept_promises import kept
from mixed_graphs import GRAPHS
from temporalio.client import Client as TemporalClient

_QUICK = {("desk", False), ("office", False), ("pairs", False), ("sprints", True)}
"""What the quick lane has. Loops, and branches beside each other, are in its simulation too."""


@pytest.mark.parametrize(
    ("graph", "seed", "local"),
    [
        pytest.param(
            *(graph, seed, local),
            marks=[] if (graph, local) in _QUICK else [pytest.mark.slow],
        )
        for graph in sorted(GRAPHS)
        for seed, local in ((2, False), (3, True))
    ],
)
async def test_a_run_keeps_its_promises_whatever_is_sent_to_it(
    temporal: TemporalClient, graph: str, seed: int, *, local: bool
) -> None:
    program = Program(temporal, seed, graph, local=local)
    try:
        async with program.started():
            await program.play(steps=12)
            await kept(program, await program.end())
    except Exception as error:
        error.add_note("\n".join(["what was done:", *program.log]))
        raise

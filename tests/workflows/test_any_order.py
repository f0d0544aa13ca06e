"""Whatever is sent to a run, in any order, right or wrong: it ends, and keeps its promises."""

from __future__ import annotations

import pytest
from any_order import Program
from kept_promises import kept
from temporalio.client import Client as TemporalClient


@pytest.mark.parametrize(("graph", "seed"), [("desk", 2), ("office", 2), ("sprints", 3)])
async def test_a_run_keeps_its_promises_whatever_is_sent_to_it(
    temporal: TemporalClient, graph: str, seed: int
) -> None:
    program = Program(temporal, seed, graph)
    try:
        async with program.started():
            await program.play(steps=12)
            await kept(program, await program.end())
    except Exception as error:
        error.add_note("\n".join(["what was done:", *program.log]))
        raise

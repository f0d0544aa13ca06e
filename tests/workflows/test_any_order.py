"""Whatever is sent to a run, in any order, right or wrong: it ends, and keeps its promises."""

from __future__ import annotations

import pytest
from any_order import Program
from kept_promises import kept
from mixed_graphs import GRAPHS
from temporalio.client import Client as TemporalClient

# On a busy machine one of ten histories of this case is not replayed to its end: the run that was
# cancelled does not complete again. It is a fault of ours or of the SDK that is not understood yet.
_SELDOM_REPLAYED = ("office", 3)


def _is_quick(number: int, graph: str, seed: int, *, local: bool) -> bool:
    """Whether the quick lane has a case: each graph once, every other one with local nodes."""
    return local == bool(number % 2) and (graph, seed) != _SELDOM_REPLAYED


@pytest.mark.parametrize(
    ("graph", "seed", "local"),
    [
        pytest.param(
            *(graph, seed, local),
            marks=[] if _is_quick(number, graph, seed, local=local) else [pytest.mark.slow],
        )
        for number, graph in enumerate(sorted(GRAPHS))
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

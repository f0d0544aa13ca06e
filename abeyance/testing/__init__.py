"""Run a graph in memory: the same core and the same node code, without a server and with its own clock.

A unit test of a graph takes milliseconds, and three days pass in one line. The core that decides is the
same module as on Temporal, so the run behaves the same; only crashes, races and other effects of
processes cannot be tested here.

    ended = await abeyance.testing.run(graph, {"amount": 250}, answers={"approve": {"approved": True}})
    assert ended.values["log"] == ["assessed", "paid"]
"""

from abeyance.testing.in_memory_run import EPOCH, InMemoryRun, run

__all__ = ["EPOCH", "InMemoryRun", "run"]

"""What the command line shows of a run whose workers are away: what was recorded last."""

from __future__ import annotations

from command_line import called
from stack import app_for, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import END, START, Graph


def deciding() -> Graph:
    """A question with a schema and a deadline."""
    graph = Graph("deciding")
    graph.interrupt(
        "amount", prompt="How much?", response=int, timeout="3d", on_timeout="goto:late"
    )

    @graph.node
    def late() -> None:
        return None

    graph.edge(START, "amount")
    graph.edge("amount", END)
    graph.edge("late", END)
    return graph


async def test_show_tells_forms_and_consequences_and_that_no_worker_has_heard_what_was_sent(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, deciding(), patience=1.0)
    async with served(app_for(site)) as api:
        async with site.worker():
            run_id, (id_,) = await api.waiting("deciding", {})
            _, with_worker, _ = await called("show", run_id, ABEYANCE_URL=api.url)
        for command in ("show", "interrupts"):
            code, out, _ = await called(command, run_id, ABEYANCE_URL=api.url)

            assert code == 0
            assert f"abeyance respond {id_} 0" in out
            assert "then goto:late" in out
        for status in ("answered", "all"):
            told = await called("interrupts", run_id, "--status", status, ABEYANCE_URL=api.url)
            assert (told[0], id_ in told[1]) == (0, status == "all")
        _, without, _ = await called("show", run_id, ABEYANCE_URL=api.url)
        await called("pause", run_id, ABEYANCE_URL=api.url)
        _, unheard, _ = await called("show", run_id, ABEYANCE_URL=api.url)

    shown = ["no worker is up" in each for each in (with_worker, without, unheard)]
    assert shown == [False, False, True]

"""What the command line shows of a run whose workers are away: what is recorded, and nothing else."""

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


async def test_show_tells_no_form_and_no_consequence_that_it_does_not_know(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, deciding(), patience=1.0)
    async with served(app_for(site)) as api:
        async with site.worker():
            run_id, (id_,) = await api.waiting("deciding", {})
            _, with_worker, _ = await called("show", run_id, ABEYANCE_URL=api.url)
        for command in ("show", "interrupts"):
            code, out, _ = await called(command, run_id, ABEYANCE_URL=api.url)

            assert (code, id_ in out) == (0, True)
            assert "known only while a worker is up" in out
            assert ("then" in out.partition("until ")[2].partition("\n")[0]) is False
            assert "abeyance respond" not in out

    assert f"abeyance respond {id_} 0" in with_worker
    assert "then goto:late" in with_worker


async def test_what_was_answered_is_not_listed_as_nothing(temporal: TemporalClient) -> None:
    site = Site(temporal, deciding(), patience=1.0)
    async with served(app_for(site)) as api:
        async with site.worker():
            run_id, _ = await api.waiting("deciding", {})
        for status in ("answered", "all"):
            code, out, err = await called(
                "interrupts", run_id, "--status", status, ABEYANCE_URL=api.url
            )

            assert (code, out) == (4, "")
            assert "no worker is up" in err

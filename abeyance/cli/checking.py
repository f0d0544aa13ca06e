"""`abeyance worker --check`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from abeyance.cli.errors import ExitCode, print_error
from abeyance.cli.formatting import readable

if TYPE_CHECKING:
    from abeyance.authoring.graph import Graph
    from abeyance.check import RunsReport
    from abeyance.settings import Settings


def check_worker(
    settings: Settings, graphs: Mapping[str, Graph], *, against_runs: bool, every: bool
) -> ExitCode:
    """Check this process, and the open runs if asked for, print the result, and return the exit code."""
    from abeyance.check import check_process

    process = check_process(settings, graphs)
    for line in process.checked:
        typer.echo(readable(line))
    for warning in process.warnings:
        print_error(f"warning: {warning}")
    if not against_runs:
        return ExitCode.DONE
    report = asyncio.run(_report(settings, graphs, every=every))
    _print(report)
    return ExitCode.FAILED if report.blocks else ExitCode.DONE


async def _report(settings: Settings, graphs: Mapping[str, Graph], *, every: bool) -> RunsReport:
    from abeyance.check import check_runs
    from abeyance.temporal.connection import connect_temporal

    temporal = await connect_temporal(settings=settings)
    return await check_runs(temporal, settings.task_queue, graphs, every=every)


def _print(report: RunsReport) -> None:
    blocked = {run_id for run_ids in report.blocks.values() for run_id in run_ids}
    typer.echo(
        f"open runs: {report.open}; looked at closely: {report.replayed}; would block: {len(blocked)}"
    )
    for block, run_ids in sorted(
        report.blocks.items(), key=lambda item: (item[0].node, item[0].code)
    ):
        typer.echo(readable(f"{block.node}: {block.code}: {block.text}"))
        typer.echo(readable(f"  remedy: {block.remedy}"))
        for run_id in sorted(run_ids):
            typer.echo(f"  {run_id}")

"""The commands about what is kept outside of Temporal."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abeyance.cli.errors import ErrorText, ExitCode
from abeyance.errors import Refusal, SettingsError

if TYPE_CHECKING:
    from abeyance.client import Client

clearing = typer.Typer(
    help="Delete what is kept outside of Temporal, where the environment says that this is.",
    no_args_is_help=True,
)


@clearing.callback()
def _group() -> None:
    """Without it, the only command of the group would take its place."""


@clearing.command(cls=ErrorText)
def delete(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN", help="Ids of runs. - reads ids from stdin.", show_default=False
        ),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Delete the blobs of runs that have ended: large values, and what their agents have said.

    What Temporal still keeps of such a run cannot be read as a whole any more. A run that goes on is
    refused. The exit code is 1 if it could not be done to some.
    """
    from abeyance.client import Client
    from abeyance.settings import load_settings

    ids = _ids(runs)
    settings = load_settings()

    async def work() -> list[dict[str, Any]]:
        client = await Client.connect(task_queue=settings.task_queue, settings=settings)
        return [await _deleted(client, run_id) for run_id in ids]

    results = asyncio.run(work())
    failed = sum(not result["ok"] for result in results)
    if as_json:
        told = {"results": results, "succeeded": len(results) - failed, "failed": failed}
        typer.echo(json.dumps(told))
    else:
        _show(results)
    if failed:
        raise typer.Exit(ExitCode.FAILED)


async def _deleted(client: Client, run_id: str) -> dict[str, Any]:
    try:
        blobs = await client.runs.delete_blobs(run_id)
    except Refusal as refusal:
        told = {"code": str(refusal.code), "detail": refusal.message}
        return {"run_id": run_id, "ok": False, **told}
    return {"run_id": run_id, "ok": True, "blobs": blobs}


def _ids(given: Sequence[str]) -> list[str]:
    read = [line.strip() for line in sys.stdin] if "-" in given else []
    ids = [run_id for run_id in dict.fromkeys([*given, *read]) if run_id not in ("", "-")]
    if not ids:
        raise SettingsError("RUN -: there is no id on stdin")
    return ids


def _show(results: Sequence[dict[str, Any]]) -> None:
    from abeyance.cli.formatting import Line, show

    show(
        Line("deleted", f"{result['run_id']}  {result['blobs']} blobs")
        if result["ok"]
        else Line("not done", f"{result['run_id']}  {result['code']}: {result['detail']}")
        for result in results
    )

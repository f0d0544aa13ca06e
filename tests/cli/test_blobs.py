"""`abeyance blobs`: what is kept outside of Temporal, deleted by whoever runs the service."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from dev_stack import Place, Stack

LARGE = "label" * 10_000


def blobs_of(stack: Stack) -> list[Path]:
    folder = stack.place.folder / "data" / "blobs"
    return [
        path for path in folder.rglob("*") if path.is_file() and LARGE.encode() in path.read_bytes()
    ]


def delete(stack: Stack, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return stack.place.call(
        "blobs",
        "delete",
        *arguments,
        given=given,
        TEMPORAL_ADDRESS=stack.temporal,
        ABEYANCE_STORAGE="data/blobs",
    )


def test_the_blobs_of_ended_runs_are_deleted_and_one_that_goes_on_keeps_its_own(
    standing: Stack,
) -> None:
    for run_id in ("large-ended", "large-open"):
        standing.start(run_id, label=LARGE)
    assert standing.answer("large-ended", 1).status_code == 200
    standing.view("large-ended", "completed")
    before = len(blobs_of(standing))

    done = delete(standing, "-", given="large-ended\nlarge-open\n\nnever-there\n")

    assert (done.returncode, done.stderr) == (1, "")
    ended, refused, nothing = done.stdout.splitlines()
    assert ended.startswith("deleted    large-ended  ")
    assert not ended.endswith(" 0 blobs")
    assert refused.startswith(
        "failed     large-open  not_finished: The run 'large-open' is awaiting-input"
    )
    assert nothing == "deleted    never-there  0 blobs"
    assert 0 < len(blobs_of(standing)) < before
    assert standing.answer("large-open", 1).status_code == 200
    standing.view("large-open", "completed")
    told = json.loads(delete(standing, "large-open", "--json").stdout)
    assert (told["succeeded"], told["failed"]) == (1, 0)
    assert blobs_of(standing) == []


def test_what_names_no_run_is_told_and_deletes_nothing(place: Place) -> None:
    done = place.call("blobs", "delete", "-", given="\n", TEMPORAL_ADDRESS="127.0.0.1:1")
    assert (done.returncode, done.stderr) == (
        2,
        "abeyance: RUN -: stdin holds no run id: write one per line\n",
    )

    done = place.call("blobs", "delete", "a-run", TEMPORAL_ADDRESS="127.0.0.1:1")
    assert done.returncode == 4
    assert "Temporal does not answer at 127.0.0.1:1" in done.stderr

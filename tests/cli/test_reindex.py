"""`abeyance reindex` prints its progress and each run without records; pipelines get an exit code."""

import pytest
from dev_stack import Place, Stack, until


@pytest.mark.slow
def test_a_run_that_temporal_does_not_have_is_named_and_the_others_are_made(
    standing: Stack,
) -> None:
    id_ = standing.start("refiled", amount=3)
    run_id = id_.rpartition(".")[0]
    records = standing.place.folder / "data/records.db"
    variables = {
        "TEMPORAL_ADDRESS": standing.temporal,
        "ABEYANCE_DATABASE_URL": f"sqlite:///{records}",
    }

    def is_listed() -> bool:
        return standing.place.call("reindex", run_id, **variables).returncode == 0

    until(is_listed, "the run in Temporal's list")
    made = standing.place.call("reindex", run_id, "nobody", **variables)

    assert (made.returncode, made.stdout) == (1, "runs: 1; not replayed: 1\n")
    told, fault = made.stderr.splitlines()
    assert told == "1 of 1 runs"
    assert fault == (
        "abeyance: the run 'nobody' has no complete records: Temporal lists no such run"
    )
    unknown = standing.place.call("reindex", "--adopt", "lost", **variables)
    assert (unknown.returncode, "no other namespace with the id 'lost'" in unknown.stderr) == (
        2,
        True,
    )


def test_a_database_that_is_away_is_named_in_one_line(place: Place) -> None:
    made = place.call(
        "reindex", ABEYANCE_DATABASE_URL="postgresql://ada:secret@127.0.0.1:1/records"
    )

    (fault,) = made.stderr.splitlines()
    assert made.returncode == 4
    assert "postgresql://127.0.0.1:1/records" in fault
    assert "secret" not in fault

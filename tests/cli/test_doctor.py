"""`abeyance doctor`: one line for each finding, its remedy, and an exit code for a pipeline."""

import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from dev_stack import Place, Stack, until
from oidc_provider import CLIENT, providing
from temporalio.client import Client as TemporalClient

from abeyance.cli.doctor import clock_finding, questions_finding
from abeyance.temporal.connection import clock_offset
from abeyance.views import UNREADABLE, InterruptView


def examined(place: Place, **variables: Any) -> tuple[int, dict[str, tuple[str, str]]]:
    """Return the exit code, and of each check the status, and the text with its remedy."""
    made = place.call("doctor", "--json", **variables)
    found = json.loads(made.stdout)
    return made.returncode, {
        entry["check"]: (entry["status"], f"{entry['text']}: {entry['remedy']}") for entry in found
    }


@pytest.mark.slow
def test_a_stack_in_good_order_passes_and_an_open_question_is_named(
    standing: Stack, tmp_path: Path
) -> None:
    id_ = standing.start("examined", amount=3)

    def is_counted() -> bool:
        listed = httpx.get(f"{standing.api}/interrupts", params={"limit": 1_000}).json()["items"]
        return id_ in [entry["id"] for entry in listed]

    # A slow database lists the question a moment after the run begins to wait.
    until(is_counted, "the question in the inbox")
    records = standing.place.folder / "data/records.db"
    variables = {"TEMPORAL_ADDRESS": standing.temporal, "ABEYANCE_STORAGE": str(tmp_path / "blobs")}
    variables["ABEYANCE_DATABASE_URL"] = f"sqlite:///{records}"
    code, found = examined(standing.place, **variables)

    assert (code, {status for status, _ in found.values()}) == (0, {"ok"})
    # The tests share the stack, so older questions may be open.
    ((count, oldest),) = re.findall(
        r"^(\d+)\+?, the oldest (\S+) since ", found["open questions"][1]
    )
    assert oldest == id_ or int(count) > 1
    assert found["workers"][1].startswith("1: ")
    assert "(build " in found["workers"][1]
    assert [path.name for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_doctor_lists_faults_with_remedies(place: Place, standing: Stack, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text("[]")
    tokens.chmod(0o644)
    code, found = examined(
        place,
        TEMPORAL_ADDRESS=standing.temporal,
        ABEYANCE_TASK_QUEUE="nobody",
        ABEYANCE_STORAGE="/proc/nowhere",
        ABEYANCE_TOKENS_FILE=str(tokens),
        ABEYANCE_MAXVISITS="3",
    )

    statuses = {check: status for check, (status, _) in found.items()}
    assert code == 1
    assert (
        statuses.items()
        >= {
            "settings": "warn",
            "tokens": "warn",
            "storage": "fail",
            "workers": "fail",
            "blocked runs": "ok",
        }.items()
    )
    assert "did you mean ABEYANCE_MAX_VISITS?" in found["settings"][1]
    assert "chmod 600" in found["tokens"][1]
    assert "abeyance worker" in found["workers"][1]


def test_doctor_without_temporal_names_the_address_and_fails(place: Place) -> None:
    made = place.call("doctor", TEMPORAL_ADDRESS="127.0.0.1:1")

    assert made.returncode == 1
    lines = [line.split(maxsplit=1)[0] for line in made.stdout.splitlines()]
    assert lines == ["ok", "ok", "ok", "ok", "fail"]
    assert "127.0.0.1:1" in made.stdout
    assert not (place.folder / ".abeyance").exists()


def test_doctor_names_an_unwritable_storage_with_a_remedy(place: Place) -> None:
    variables = {"ABEYANCE_STORAGE": "/proc/nowhere", "TEMPORAL_ADDRESS": "127.0.0.1:1"}
    _, found = examined(place, **variables)

    status, text = found["storage"]
    assert status == "fail"
    assert text.startswith("a blob could not be written to /proc/nowhere: ")
    assert text.endswith(": see that it is there, and that this process may write to it")


def test_doctor_names_an_unusable_database_with_a_remedy(place: Place, tmp_path: Path) -> None:
    variables = {"TEMPORAL_ADDRESS": "127.0.0.1:1"}
    (tmp_path / "records.db").write_bytes(b"something else" * 1000)
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE accounts (id INTEGER)")

    for url, status, told in (
        (f"sqlite:///{tmp_path}/new.db", "ok", "new.db is made when it is first used"),
        (f"sqlite:///{tmp_path}/a/b/new.db", "ok", "new.db is made when it is first used"),
        (f"sqlite:///{tmp_path}/other.db/new.db", "fail", "Not a directory"),
        (
            "sqlite:////proc/nowhere/new.db",
            "fail",
            "see that it is there, and that this process may",
        ),
        (f"sqlite:///{tmp_path}/records.db", "fail", "file is not a database"),
        (f"sqlite:///{tmp_path}/other.db", "fail", "has tables of something else"),
        ("postgresql://ada:hush@127.0.0.1:1/name", "fail", "Connection refused"),
    ):
        _, found = examined(place, **variables, ABEYANCE_DATABASE_URL=url)
        assert found["records"][0] == status
        assert told in found["records"][1]
        assert "hush" not in found["records"][1]
    assert not {"new.db", "a"} & {each.name for each in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("seconds", "status", "text"),
    [(0.2, "ok", "0.2 s"), (-30, "warn", "30 s behind"), (30, "warn", "30 s ahead of")],
)
def test_a_clock_that_is_off_is_a_warning(seconds: float, status: str, text: str) -> None:
    found = clock_finding(timedelta(seconds=seconds))

    assert (found.status, text in found.text) == (status, True)


def test_a_question_that_no_key_of_this_process_opens_is_a_failure_that_names_the_key() -> None:
    now = datetime(2026, 3, 2, tzinfo=UTC)
    named = dict.fromkeys(["id", "run_id", "graph", "name", "kind", "address", "prompt"], "r.1")
    shown = InterruptView(**named, created_at=now, status="open")
    sealed = {"id": "r.2", "kind": UNREADABLE, "prompt": "This needs the key 'old'"}

    found = questions_finding([shown, shown.model_copy(update=sealed)], now, more=False)

    assert (found.status, questions_finding([shown], now, more=False).status) == ("fail", "ok")
    assert "1 cannot be read here, such as r.2: This needs the key 'old'" in found.text


async def test_the_clock_of_a_server_on_this_machine_is_ours(temporal: TemporalClient) -> None:
    assert abs(await clock_offset(temporal)) < timedelta(seconds=2)


def test_a_provider_of_sign_ins_is_asked_whether_it_is_one(place: Place) -> None:
    nowhere = "http://127.0.0.1:1"
    with providing() as provider:
        about = {"ABEYANCE_OIDC_CLIENT_ID": CLIENT, "TEMPORAL_ADDRESS": "127.0.0.1:1"}
        _, there = examined(place, ABEYANCE_OIDC_ISSUER=provider.url, **about)
        code, away = examined(place, ABEYANCE_OIDC_ISSUER=nowhere, **about)

    assert there["sign-in"][0] == "ok"
    assert code == 1
    assert away["sign-in"][0] == "fail"
    assert nowhere in away["sign-in"][1]

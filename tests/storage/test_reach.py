"""A folder as storage is refused if other processes could not read it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from abeyance.api.app import serve
from abeyance.client import Client
from abeyance.errors import SettingsError
from abeyance.settings import Settings, load_settings
from abeyance.storage.backends import DEFAULT_FOLDER, blobs_of, check_reach, is_on_this_machine
from abeyance.storage.blobs import BlobMissing
from abeyance.temporal.connection import connect_temporal

ELSEWHERE = "temporal.example:7233"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ADDRESS", "PROFILE", "NAMESPACE"):
        monkeypatch.delenv(f"TEMPORAL_{name}", raising=False)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", "/dev/null")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:7233", True),
        ("127.8.8.8:1", True),
        ("localhost:7233", True),
        ("[::1]:7233", True),
        ("temporal:7233", False),
        ("10.0.0.1:7233", False),
        ("localhost.example:7233", False),
        ("127.0.0.1.example:7233", False),
    ],
)
def test_loopback_addresses_are_recognized(address: str, expected: bool) -> None:
    assert is_on_this_machine(address) is expected


async def test_worker_client_and_api_refuse_a_folder_if_temporal_is_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", ELSEWHERE)
    monkeypatch.setenv("ABEYANCE_STORAGE", "blobs")
    (tmp_path / "far_app.py").write_text(
        "from abeyance import START, Graph\n"
        "graphs = Graph('g')\n"
        "graphs.interrupt('ask', prompt='Well?')\n"
        "graphs.edge(START, 'ask')\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    settings = load_settings()
    told = f"'blobs' is a folder, and Temporal is at {ELSEWHERE}.*ABEYANCE_STORAGE_SHARED=1"

    with pytest.raises(SettingsError, match=told):
        await connect_temporal(settings=settings)
    with pytest.raises(SettingsError, match=told):
        await Client.connect()
    app = settings.model_copy(update={"app": "far_app:graphs"})
    with pytest.raises(SettingsError, match=told):
        await serve(app, "127.0.0.1", 0)
    with pytest.raises(SettingsError, match=told):
        blobs_of(settings)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(storage="blobs", storage_shared=True),
        Settings(storage="s3://bucket/prefix"),
    ],
    ids=["none", "shared", "bucket"],
)
def test_a_storage_that_all_processes_reach_is_accepted(settings: Settings) -> None:
    check_reach(settings, ELSEWHERE)


def test_a_file_is_refused_where_a_folder_is_needed(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()

    with pytest.raises(SettingsError, match="ABEYANCE_STORAGE='taken' is a file"):
        check_reach(Settings(storage="taken"))


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("PROFILE", "nowhere", "Profile 'nowhere' not found"),
        ("TLS_CLIENT_CERT_PATH", "nowhere.pem", "No such file or directory: 'nowhere.pem'"),
        ("CONFIG_FILE", "wrong.toml", "unclosed table"),
    ],
)
async def test_a_connection_that_the_environment_says_wrongly_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str, told: str
) -> None:
    (tmp_path / "wrong.toml").write_text("[profile")
    monkeypatch.setenv(f"TEMPORAL_{variable}", value)

    with pytest.raises(SettingsError, match=rf"TEMPORAL_\*.*{told}"):
        check_reach(Settings())
    with pytest.raises(SettingsError, match=told):
        await connect_temporal(settings=Settings())


async def test_the_default_storage_is_below_the_current_directory(
    tmp_path: Path,
) -> None:
    blobs = blobs_of(Settings())
    ref = await blobs.put("run-1", b"x")

    assert (tmp_path / DEFAULT_FOLDER / ref).read_bytes() == b"x"
    await blobs.delete_run("run-1")
    with pytest.raises(BlobMissing):
        await blobs.get(ref)


def test_a_remote_temporal_requires_a_configured_storage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", ELSEWHERE)

    with pytest.raises(SettingsError, match=f"Temporal is at {ELSEWHERE}.* Set ABEYANCE_STORAGE"):
        blobs_of(Settings())


async def test_another_package_stores_at_the_scheme_that_it_is_named_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[abeyance.storage]\nshelf = their_storage:shelf\n")
    (tmp_path / "their_storage.py").write_text(
        "from abeyance.storage.blobs import FolderBlobs\n\n"
        "def shelf(bucket, prefix):\n"
        f"    return FolderBlobs('{tmp_path}/' + bucket + '-' + prefix)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Settings(storage="shelf://left/top")
    check_reach(settings, ELSEWHERE)
    ref = await blobs_of(settings).put("run-1", b"x")

    assert (tmp_path / "left-top" / ref).read_bytes() == b"x"


def test_a_scheme_at_which_no_package_stores_is_refused_with_those_that_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ABEYANCE_STORAGE", "gs://bucket/prefix")

    with pytest.raises(SettingsError, match=r"no installed package stores at gs://.* s3://bucket"):
        load_settings()

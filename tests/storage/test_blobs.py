"""Blobs are read as they were written, or the error says why not; folder and memory behave alike."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from abeyance.errors import Unavailable
from abeyance.storage.blobs import BlobMissing, Blobs, FolderBlobs, MemoryBlobs

FORGED = ["", "/etc/hostname", "../../etc/hostname", "a.0123456789abcdef/../../x", "x" * 500]


@pytest.fixture(params=["memory", "folder"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    return MemoryBlobs() if request.param == "memory" else FolderBlobs(tmp_path / "blobs")


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def test_a_stored_blob_is_read_back(blobs: Blobs) -> None:
    refs = [await blobs.put("run-1", data) for data in (b"", b"\x00\xff", b"x" * 300_000)]

    assert [await blobs.get(ref) for ref in refs] == [b"", b"\x00\xff", b"x" * 300_000]


async def test_the_same_bytes_of_a_run_are_kept_once_and_those_of_runs_apart(blobs: Blobs) -> None:
    first, again = await blobs.put("run-1", b"same"), await blobs.put("run-1", b"same")
    other = await blobs.put("run-2", b"same")

    assert first == again
    assert other != first


async def test_a_runs_blobs_are_deleted_and_no_others(blobs: Blobs) -> None:
    gone = [await blobs.put("Run-1", data) for data in (b"one", b"two")]
    # A file system may take these names for the same name.
    kept = [await blobs.put(run_id, b"one") for run_id in ("run-1", "Run-11", "Run_1", "Run 1")]

    assert await blobs.delete_run("Run-1") == 2
    assert await blobs.delete_run("never-there") == 0

    for ref in gone:
        with pytest.raises(BlobMissing, match=r"is not in .*ABEYANCE_STORAGE"):
            await blobs.get(ref)
    assert [await blobs.get(ref) for ref in kept] == [b"one"] * 4


@pytest.mark.parametrize("ref", FORGED)
async def test_a_text_that_is_not_a_reference_is_refused(blobs: Blobs, ref: str) -> None:
    with pytest.raises(BlobMissing, match="is not a blob reference"):
        await blobs.get(ref)


@pytest.mark.parametrize("run_id", ["", "../../escape", "a/b", "conversation:Ä\n", "x" * 1000])
async def test_whatever_an_id_holds_its_blobs_stay_below_the_folder(
    tmp_path: Path, run_id: str
) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    ref = await blobs.put(run_id, b"data")

    assert await blobs.get(ref) == b"data"
    assert [path.parents[1] for path in files(tmp_path)] == [tmp_path / "blobs"]


async def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    ref = await blobs.put("run-1", b"secret")
    (path,) = files(tmp_path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(BlobMissing, match="leads out of"):
        await blobs.get(ref)


async def test_a_damaged_file_is_not_read_and_is_mended_by_the_next_put(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    ref = await blobs.put("run-1", b"as it was")
    (path,) = files(tmp_path)

    for damage in (b"as it is!", b"as"):
        path.write_bytes(damage)
        with pytest.raises(BlobMissing, match=f"{ref}.* is damaged"):
            await blobs.get(ref)
    assert await blobs.put("run-1", b"as it was") == ref
    assert await blobs.get(ref) == b"as it was"


async def test_concurrent_puts_of_the_same_bytes_leave_one_file(tmp_path: Path) -> None:
    data = os.urandom(500_000)
    refs = await asyncio.gather(*(FolderBlobs(tmp_path).put("run-1", data) for _ in range(12)))

    assert len({*refs}) == 1
    assert [path.read_bytes() for path in files(tmp_path)] == [data]


async def test_a_folder_that_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    await FolderBlobs(tmp_path / "blobs").put("run-1", b"private")

    assert (tmp_path / "blobs").stat().st_mode & 0o777 == 0o700


async def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")

    with pytest.raises(Unavailable, match=r"could not be written to .*taken"):
        await FolderBlobs(tmp_path / "taken").put("run-1", b"x")
    assert files(tmp_path) == [tmp_path / "taken"]


async def test_a_relative_folder_stays_when_the_current_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blobs = FolderBlobs("blobs")
    ref = await blobs.put("run-1", b"x")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")

    assert await blobs.get(ref) == b"x"

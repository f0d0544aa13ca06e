"""Blobs in a bucket, at a server that speaks the protocol of S3."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer

from abeyance.contrib.s3.blobs import S3Blobs
from abeyance.errors import SettingsError, Unavailable
from abeyance.settings import Settings
from abeyance.storage.backends import blobs_of
from abeyance.storage.blobs import BlobMissing

BUCKET = "letters"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "made")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "up")
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    yield
    for entry in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=entry["Key"])
    client.close()


def keys_of(prefix: str) -> list[str]:
    client = boto3.client("s3")
    found = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
    client.close()
    return [entry["Key"] for entry in found]


async def test_a_stored_blob_is_read_back_and_kept_once_below_the_prefix() -> None:
    blobs = S3Blobs(BUCKET, "our/letters/")
    datas = [b"", b"\x00\xff", b"x" * 300_000]
    refs = await asyncio.gather(*(blobs.put("run-1", data) for data in datas))

    assert await asyncio.gather(*map(blobs.get, refs)) == datas
    assert await blobs.put("run-1", datas[2]) == refs[2]
    assert sorted(keys_of("")) == sorted(f"our/letters/{ref}" for ref in refs)
    await blobs.close()


async def test_a_runs_blobs_are_deleted_all_of_them_and_no_others() -> None:
    blobs = S3Blobs(BUCKET)
    refs = await asyncio.gather(*(blobs.put("run-1", bytes([n])) for n in range(30)))
    kept = await blobs.put("run-11", b"kept")

    assert await blobs.delete_run("run-1") == 30
    assert await blobs.delete_run("run-1") == 0

    with pytest.raises(BlobMissing, match=f"{refs[0]} is not in s3://{BUCKET}/"):
        await blobs.get(refs[0])
    assert keys_of("") == [kept]
    await blobs.close()


async def test_invalid_references_and_damaged_blobs_are_refused() -> None:
    blobs = S3Blobs(BUCKET, "p")
    ref = await blobs.put("run-1", b"as it was")
    client = boto3.client("s3")
    client.put_object(Bucket=BUCKET, Key=f"p/{ref}", Body=b"as it is!")
    client.close()

    with pytest.raises(BlobMissing, match="is damaged"):
        await blobs.get(ref)
    with pytest.raises(BlobMissing, match="is not a blob reference"):
        await blobs.get("../p/secret")
    await blobs.close()


async def test_a_bucket_that_is_not_there_is_a_setting_that_is_wrong() -> None:
    blobs = S3Blobs("never-made")

    with pytest.raises(SettingsError, match=r"ABEYANCE_STORAGE: .*s3://never-made/"):
        await blobs.put("run-1", b"x")
    await blobs.close()


async def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    blobs = S3Blobs(BUCKET)

    with pytest.raises(SettingsError, match="set credentials in the environment"):
        await blobs.put("run-1", b"x")
    await blobs.close()


async def test_an_unreachable_server_is_named() -> None:
    blobs = S3Blobs(BUCKET, endpoint_url="http://127.0.0.1:1")

    with pytest.raises(Unavailable, match=f"could not be read from s3://{BUCKET}/"):
        await blobs.get(f"run-1.{'0' * 16}/{'0' * 64}")
    await blobs.close()


async def test_the_setting_leads_there(keys: str) -> None:
    blobs = blobs_of(Settings(storage=f"s3://{BUCKET}/deep/er", encryption_keys=keys))
    ref = await blobs.put("run-1", b"the secret")

    assert await blobs.get(ref) == b"the secret"
    assert keys_of("deep/er/") == [f"deep/er/{ref}"]

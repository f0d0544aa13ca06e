"""Blobs in S3 or a compatible object storage.

Endpoint and credentials come from the usual AWS environment (`AWS_ENDPOINT_URL_S3`, `AWS_REGION`,
`AWS_ACCESS_KEY_ID`, profiles, the role of a machine).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from abeyance.errors import SettingsError, Unavailable
from abeyance.storage.blobs import (
    checked_data,
    checked_reference,
    folder_of,
    in_thread,
    missing,
    reference,
)

T = TypeVar("T")

_ABSENT: Final = frozenset({"NoSuchKey", "404", "NotFound"})
_PERMANENT: Final = frozenset(
    {
        "403",
        "AccessDenied",
        "AllAccessDisabled",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidBucketName",
        "NoSuchBucket",
        "SignatureDoesNotMatch",
    }
)
"""Error codes that a retry cannot fix."""
_SECONDS: Final = 10
_ATTEMPTS: Final = 4


class S3Blobs:
    """Blobs in a bucket, below `prefix`. `endpoint_url` overrides the environment.

    Raises SettingsError if boto3 is not installed.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint_url: str | None = None,
    ) -> None:
        if find_spec("boto3") is None:
            raise SettingsError(
                "ABEYANCE_STORAGE names a bucket, and the S3 client is not installed: "
                "`pip install 'abeyance[s3]'`"
            )
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._endpoint_url = endpoint_url
        self._where = f"s3://{bucket}/{self._prefix}"
        self._s3: Any = None
        self._lock = threading.Lock()

    async def put(self, run_id: str, data: bytes) -> str:
        ref = reference(run_id, data)
        key = self._prefix + ref

        def send(client: Any) -> None:
            # The same large blob is put many times: checking is faster than sending.
            if not _is_there(client, self._bucket, key):
                client.put_object(Bucket=self._bucket, Key=key, Body=data)

        await self._done("written to", send)
        return ref

    async def get(self, ref: str) -> bytes:
        key = self._prefix + checked_reference(ref)

        def read(client: Any) -> bytes:
            with client.get_object(Bucket=self._bucket, Key=key)["Body"] as body:
                data: bytes = body.read()
            return data

        try:
            data = await self._done("read from", read)
        except _Absent:
            raise missing(ref, self._where) from None
        return checked_data(ref, data, self._where)

    async def delete(self, name: str) -> None:
        key = self._prefix + name
        await self._done(
            "deleted from", lambda client: client.delete_object(Bucket=self._bucket, Key=key)
        )

    async def delete_run(self, run_id: str) -> int:
        prefix = f"{self._prefix}{folder_of(run_id)}/"

        def delete(client: Any) -> tuple[int, list[Mapping[str, Any]]]:
            errors: list[Mapping[str, Any]] = []
            total = 0
            pages = client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                keys = [{"Key": entry["Key"]} for entry in page.get("Contents", ())]
                total += len(keys)
                if keys:
                    response = client.delete_objects(Bucket=self._bucket, Delete={"Objects": keys})
                    errors += response.get("Errors", ())
            return total, errors

        total, errors = await self._done("deleted from", delete)
        if errors:
            raise Unavailable(
                f"{len(errors)} blobs of the run {run_id!r} could not be deleted from {self._where}: "
                f"{errors[0].get('Key')}: {errors[0].get('Message')}. Delete them again later"
            )
        return total

    async def _done(self, verb: str, work: Callable[[Any], T]) -> T:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            return await in_thread(lambda: work(self._client()))
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in _ABSENT:
                raise _Absent from error
            text = f"a blob could not be {verb} {self._where}: {error}"
            if code in _PERMANENT:
                raise SettingsError(
                    f"ABEYANCE_STORAGE: {text}: check the bucket and its permissions"
                ) from error
            raise Unavailable(text) from error
        except NoCredentialsError as error:
            raise SettingsError(
                f"ABEYANCE_STORAGE: a blob could not be {verb} {self._where}: set credentials in the "
                "environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, ...)"
            ) from error
        except BotoCoreError as error:
            raise Unavailable(f"a blob could not be {verb} {self._where}: {error}") from error

    def _client(self) -> Any:
        # Threads may share a client, but not create one concurrently.
        with self._lock:
            if self._s3 is None:
                self._s3 = _new_client(self._endpoint_url)
            return self._s3

    async def close(self) -> None:
        """Close all connections; later calls open new ones."""
        with self._lock:
            client, self._s3 = self._s3, None
        if client is not None:
            await in_thread(client.close)


class _Absent(Exception):
    """The object does not exist."""


def _new_client(endpoint_url: str | None) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=_SECONDS,
        read_timeout=_SECONDS,
        # Not every server supports the newer checksums, and blobs are verified by their own hashes.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
    )
    return boto3.session.Session().client("s3", endpoint_url=endpoint_url, config=config)


def _is_there(client: Any, bucket: str, key: str) -> bool:
    from botocore.exceptions import ClientError

    try:
        client.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") == "404":
            return False
        raise
    return True

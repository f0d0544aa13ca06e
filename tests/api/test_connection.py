"""The connection of a process to its Temporal, and the error if it cannot connect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from temporalio.client import Client as TemporalClient
from temporalio.service import GrpcCompression

from abeyance.client import Client
from abeyance.errors import SettingsError, Unavailable
from abeyance.settings import Settings
from abeyance.temporal.connection import connect_temporal


@asynccontextmanager
async def something_else() -> AsyncIterator[str]:
    """Yield the address of a server that is not Temporal."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


async def test_a_server_that_is_not_temporal_is_named_in_plain_words() -> None:
    async with something_else() as address:
        with pytest.raises(Unavailable) as caught:
            await connect_temporal(address)

    told = str(caught.value)
    assert told.startswith(
        f"Temporal does not answer at {address}: start it, or set TEMPORAL_ADDRESS"
    )
    assert not [
        noise for noise in ("tonic", "hyper", "Status {", "Some(", "kind:") if noise in told
    ]


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "a b:7233"])
async def test_an_invalid_address_is_a_fault_of_the_setting(address: str) -> None:
    with pytest.raises(SettingsError, match=f"TEMPORAL_ADDRESS: '{address}' is not an address"):
        await connect_temporal(address)


async def test_an_empty_namespace_is_a_setting_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "")

    with pytest.raises(SettingsError, match="TEMPORAL_NAMESPACE is empty"):
        await connect_temporal("127.0.0.1:1")


async def test_a_connection_that_stays_on_this_machine_is_not_compressed(
    temporal: TemporalClient,
) -> None:
    own = await connect_temporal(temporal.service_client.config.target_host)

    assert own.service_client.config.grpc_compression is GrpcCompression.NONE


async def test_a_client_has_the_task_queue_of_the_settings_unless_it_names_one(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = temporal.service_client.config.target_host
    monkeypatch.setenv("ABEYANCE_TASK_QUEUE", "of-the-environment")
    settings = Settings(task_queue="of-the-settings")

    queues = [
        (await Client.connect(address)).task_queue,
        (await Client.connect(address, settings=settings)).task_queue,
        (await Client.connect(address, settings=settings, task_queue="named")).task_queue,
    ]

    assert queues == ["of-the-environment", "of-the-settings", "named"]

"""What whoever starts a process is told when its Temporal cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from temporalio.client import Client
from temporalio.service import GrpcCompression

from abeyance.errors import SettingsError, Unavailable
from abeyance.temporal.connection import connect_temporal


@asynccontextmanager
async def something_else() -> AsyncIterator[str]:
    """The address of a server that is no Temporal."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


async def test_what_is_no_temporal_is_told_in_words_of_this_world() -> None:
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
async def test_what_is_no_address_is_a_setting_to_mend(address: str) -> None:
    with pytest.raises(SettingsError, match=f"TEMPORAL_ADDRESS: '{address}' is not an address"):
        await connect_temporal(address)


async def test_a_connection_that_stays_on_this_machine_is_not_compressed(temporal: Client) -> None:
    own = await connect_temporal(temporal.service_client.config.target_host)

    assert own.service_client.config.grpc_compression is GrpcCompression.NONE

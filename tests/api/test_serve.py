"""A process that serves the API on a port."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from pathlib import Path

import httpx
import pytest
from ports import free_port
from temporal_site import eventually

from abeyance import SettingsError
from abeyance.api.app import serve
from abeyance.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
APP = "sample_app:graphs"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "sample_app.py").write_text(
        "from abeyance import END, START, Graph\n"
        "graphs = Graph('g')\n"
        "graphs.interrupt('ask', prompt='Well?')\n"
        "graphs.edge(START, 'ask')\n"
        "graphs.edge('ask', END)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "sample_app", raising=False)
    # No server answers there: the API must come up without Temporal.
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    return Settings(app=APP)


async def answers(port: int) -> bool:
    async with httpx.AsyncClient(trust_env=False) as http:
        try:
            response = await http.get(f"http://127.0.0.1:{port}/healthz")
        except httpx.TransportError:
            return False
    return response.status_code == 200


async def test_the_api_serves_on_the_free_port_that_its_log_names(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "abeyance.api")
    serving = asyncio.create_task(serve(settings, "127.0.0.1", 0))

    async def named() -> str | None:
        logged = re.search(r"url=http://127\.0\.0\.1:(\d+) \| the API listens", caplog.text)
        return logged and logged[1]

    port = await eventually(named)
    await eventually(lambda: answers(int(port)))
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving

    assert not await answers(int(port))


async def test_the_api_ends_quietly_on_a_signal(settings: Settings) -> None:
    port = free_port()
    program = (
        "import asyncio\n"
        "from abeyance.api.app import serve\n"
        "from abeyance.settings import Settings\n"
        f"asyncio.run(serve(Settings(app={APP!r}), '127.0.0.1', {port}))\n"
        "print('cleaned up')\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await eventually(lambda: answers(port), seconds=90)
        process.send_signal(signal.SIGTERM)
        told, failed = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()

    assert (process.returncode, told) == (0, b"cleaned up\n")
    # The process may only complain that Temporal is not there.
    assert all(b"Temporal" in line for line in failed.splitlines()), failed


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])  # noqa: S104
async def test_an_api_without_authentication_listens_on_loopback_only(
    settings: Settings, host: str
) -> None:
    with pytest.raises(SettingsError, match="ABEYANCE_TOKENS_FILE"):
        await serve(settings, host, 0)


async def test_an_api_with_an_issuer_of_tokens_may_listen_anywhere(settings: Settings) -> None:
    issuer = {"jwt_issuer": "us", "jwt_audience": "us", "jwt_jwks": "http://127.0.0.1:1/keys"}
    # No machine has this address: the error shows that the API tried to listen there.
    with pytest.raises(SettingsError, match=r"cannot listen on 192\.0\.2\.1"):
        await serve(settings.model_copy(update=issuer), "192.0.2.1", 0)


async def test_a_port_in_use_is_one_clear_line(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"127\.0\.0\.1:{port}.*in use.*another one"):
            await serve(settings, "127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1)])
async def test_a_port_that_cannot_be_is_one_clear_line(
    settings: Settings, host: str, port: int
) -> None:
    with pytest.raises(SettingsError, match="cannot listen"):
        await serve(settings, host, port)


async def test_graphs_that_cannot_be_found_stop_the_start(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        await serve(settings.model_copy(update={"app": "nowhere:graphs"}), "127.0.0.1", 0)

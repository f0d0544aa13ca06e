"""The API serves the protocols of installed packages, and names those that it cannot use."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import httpx
import pytest

from abeyance.api.app import create_app
from abeyance.errors import SettingsError
from abeyance.settings import Settings

_HOST = "desk.example"
_PAGE = "https://chat.example"
_THEIRS = """
from fastapi import APIRouter, Body

from abeyance.api.protocols import Protocol

router = APIRouter()


@router.post("/theirs/{name}")
async def say(name: str, said: str = Body()) -> dict[str, int]:
    return {name: len(said)}


protocol = Protocol(
    path="/theirs",
    install=lambda app: app.include_router(router),
    headers=("x-theirs",),
    largest_body=3_000_000,
)
nothing = "no protocol"
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "their_protocol.py").write_text(_THEIRS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def offer(folder: Path, value: str) -> None:
    about = folder / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[abeyance.protocols]\ntheirs = {value}\n")


def client(settings: Settings) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=create_app(settings, {}))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{_HOST}")


async def test_the_protocol_of_another_package_is_served_with_bodies_as_large_as_it_says(
    install: Path,
) -> None:
    offer(install, "their_protocol:protocol")

    async with client(Settings(allowed_hosts=(_HOST,))) as http:
        fits = await http.post("/theirs/ada", json="a" * 2_000_000)
        too_long = await http.post("/theirs/ada", json="a" * 3_000_000)
        elsewhere = await http.post("/theirsnot", json="a" * 2_000_000)

    assert (fits.status_code, fits.json()) == (200, {"ada": 2_000_000})
    assert [too_long.status_code, elsewhere.status_code] == [413, 413]


async def test_only_pages_that_are_allowed_may_call_it_with_the_headers_that_it_names(
    install: Path, tmp_path: Path
) -> None:
    offer(install, "their_protocol:protocol")
    tokens = tmp_path / "tokens.json"
    hashed = hashlib.sha256(b"a-token").hexdigest()
    tokens.write_text(json.dumps([{"subject": "ada", "sha256": hashed, "capabilities": ["*"]}]))
    settings = Settings(tokens_file=tokens, allowed_origins=(_PAGE,), allowed_hosts=(_HOST,))

    async with client(settings) as http:
        asked = {"origin": _PAGE, "access-control-request-method": "POST"}
        allowed = await http.options("/theirs/ada", headers=asked)
        elsewhere = await http.options("/runs", headers=asked)
        foreign = await http.options(
            "/theirs/ada", headers={**asked, "origin": "https://foreign.example"}
        )

    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (204, _PAGE)
    assert "x-theirs" in allowed.headers["access-control-allow-headers"].split(", ")
    assert [elsewhere.status_code, foreign.status_code] == [403, 403]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("their_protocol:absent", "cannot be imported"),
        ("no_such_module:protocol", "cannot be imported"),
        ("their_protocol:nothing", "is str: it has to name a Protocol"),
    ],
)
def test_an_unusable_protocol_is_named_with_its_package(
    install: Path, value: str, fault: str
) -> None:
    offer(install, value)

    with pytest.raises(SettingsError, match="'theirs' of abeyance.protocols.*" + fault):
        create_app(Settings(), {})

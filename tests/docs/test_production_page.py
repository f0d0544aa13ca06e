"""docs/how-to/production.md has steps that work, and settings.md has every setting."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pages import DOCS, read
from starlette.requests import Request

from abeyance.api.auth import Tokens
from abeyance.settings import Settings

_SETTINGS = read("reference/settings.md")
_ROW = re.compile(r"^\| `ABEYANCE_([A-Z_]+)` \| (?:`([^`]+)`)? ?\| ", re.MULTILINE)


def as_written(default: Any) -> str:
    """Return a default as an operator would write it into the environment; None is an empty text."""
    match default:
        case None | ():
            return ""
        case bool():
            return str(default).lower()
        case float():
            return f"{default:g}"
        case _:
            return str(default)


def test_every_setting_is_listed_with_its_default() -> None:
    listed = {name.lower(): default for name, default in _ROW.findall(_SETTINGS)}

    assert listed == {
        name: as_written(field.default) for name, field in Settings.model_fields.items()
    }


def test_every_setting_that_a_page_names_exists() -> None:
    for page in (DOCS.parent / "README.md", *DOCS.rglob("*.md")):
        named = {*re.findall(r"ABEYANCE_([A-Z_]+)", page.read_text(encoding="utf-8"))}
        assert {name.lower() for name in named} <= {*Settings.model_fields}, page


def made_as_told(page: str, folder: Path) -> str:
    (recipe,) = re.findall(
        r"^ *```sh\n([^`]*?abeyance token add.*?)^ *```", read(page), re.DOTALL | re.MULTILINE
    )
    return subprocess.run(
        ["sh", "-euc", f'{recipe}\nprintf %s "$token"'],
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


@pytest.mark.parametrize(
    ("page", "capabilities"),
    [
        ("how-to/production.md", ("runs:read", "runs:respond")),
        ("tutorial/deploy.md", ("runs:read", "runs:respond", "refunds:approve")),
    ],
)
async def test_a_token_made_as_documented_is_accepted(
    page: str, capabilities: tuple[str, ...], tmp_path: Path
) -> None:
    headers = [(b"authorization", f"Bearer {made_as_told(page, tmp_path)}".encode())]
    request = Request({"type": "http", "headers": headers})
    principal = (await Tokens(tmp_path / "tokens.json").authenticate(request)).principal

    assert (principal.subject, principal.capabilities) == ("ada", capabilities)

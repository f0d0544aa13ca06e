"""Node programs with the official protocol clients from npm."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

PACKAGES: Final = {"@ag-ui/client": "1.0.0", "ai": "6.0.324"}
"""Exact versions; Node 20 is enough for them."""
_HOW: Final = "install Node 20 or later with npm, for example `apt install nodejs npm`"


def modules() -> Path:
    """Return a folder with the packages in `node_modules`, installed once for all tests of this user."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip(f"needs Node and npm: {_HOW}")
    manifest = json.dumps({"private": True, "dependencies": PACKAGES})
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "abeyance-tests"
    folder = cache / hashlib.sha256(manifest.encode()).hexdigest()[:16]
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=cache))
    try:
        (fresh / "package.json").write_text(manifest)
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
        done = subprocess.run(
            [npm, "install", *options],
            cwd=fresh,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"npm cannot install {', '.join(PACKAGES)} here: {done.stderr[-500:]}")
        if not folder.is_dir():
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


async def converse(
    program: str,
    folder: Path,
    environment: Mapping[str, str],
    *lines: tuple[str, str],
    arguments: Sequence[str] = (),
) -> str:
    """Run a program, answer each prompt (its end, and the line to type), and return all that it wrote."""
    script = folder / "program.mjs"
    script.write_text(program)
    link = folder / "node_modules"
    if not link.exists():
        link.symlink_to(modules() / "node_modules")
    running = await asyncio.create_subprocess_exec(
        *("node", str(script), *arguments),
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        env={"PATH": os.environ["PATH"], **environment},
    )
    assert running.stdin is not None
    assert running.stdout is not None
    written = b""
    try:
        async with asyncio.timeout(60):
            for prompt, line in lines:
                before = len(written)
                while prompt.encode() not in written[before:]:
                    read = await running.stdout.read(4096)
                    assert read, f"it ended before {prompt!r}: {written.decode()}"
                    written += read
                running.stdin.write(f"{line}\n".encode())
                await running.stdin.drain()
            written += await running.stdout.read()
            code = await running.wait()
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    assert code == 0, written.decode()
    return written.decode()

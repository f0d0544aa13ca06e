"""docs/how-to/audit.md is one session that works as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from dev_stack import Place, until
from pages import blocks, prose

from abeyance.records.audit_chain import LAST

PAGE = "how-to/audit.md"
PRINT, TAMPERED, KEY, ERASE = (block.text for block in blocks(PAGE, "console"))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_commands_of_the_page_are_one_session(tmp_path: Path) -> None:
    place = Place(tmp_path)
    made = re.fullmatch(r"export ABEYANCE_AUDIT_KEY=\$\((.*)\)\n(.*)\n", KEY)
    assert made is not None
    secret = subprocess.run(["sh", "-c", made[1]], capture_output=True, text=True, check=True)
    shim = tmp_path / "bin" / "abeyance"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m abeyance "$@"\n')
    shim.chmod(0o700)
    place.environment = {
        **place.environment,
        "PATH": f"{shim.parent}:{place.environment['PATH']}",
        "ABEYANCE_AUDIT_KEY": secret.stdout.strip(),
    }
    with place.stack() as stack:
        variables = {"ABEYANCE_URL": stack.api, "TEMPORAL_ADDRESS": stack.temporal}

        def typed(text: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["sh", "-uc", text],
                cwd=tmp_path,
                env={**place.environment, **variables},
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )

        def erased() -> bool:
            return "erased" in typed(ERASE).stdout

        stack.start("refund-A-7", amount=4)
        refused = typed(ERASE)
        assert (refused.returncode, "not_finished" in refused.stderr) == (3, True)
        stack.answer("refund-A-7", 2)
        stack.view("refund-A-7", "completed")

        printed = typed(PRINT)
        assert (printed.returncode, printed.stderr) == (0, "")
        assert "none was changed" in printed.stdout
        file = tmp_path / "refund-A-7.jsonl"
        assert '"answer":2' in file.read_text(encoding="utf-8")
        public = typed(made[2]).stdout.strip()
        verifying = PRINT.splitlines()[1]
        signed = typed(f"{verifying} --key {public}")
        assert (signed.returncode, signed.stdout.split()[-2:]) == (0, ["signatures", "match"])
        strange = typed(f"{verifying} --key {secret.stdout.strip()}")
        assert (strange.returncode, "is not one of this key" in strange.stdout) == (1, True)

        command, told = TAMPERED.removeprefix("$ ").split("\n", 1)
        lines = file.read_bytes().splitlines(keepends=True)
        lines[3] = lines[3].replace(b'"time":"2', b'"time":"1')
        file.write_bytes(b"".join(lines))
        found = typed(command)
        assert (found.returncode, found.stdout) == (1, told)

        until(erased, "the run to be erased", seconds=90)
        assert httpx.get(f"{stack.api}/runs/refund-A-7").status_code == 410


def test_the_page_names_the_types_of_the_last_lines() -> None:
    for type_ in LAST:
        assert f"`{type_}`" in prose(PAGE)

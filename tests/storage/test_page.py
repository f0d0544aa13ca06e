"""docs/how-to/storage.md is right about its numbers, its key and its command."""

from __future__ import annotations

import re
import subprocess
import sys

from pages import blocks, prose
from temporal_site import BINARY

from abeyance.settings import Settings

PAGE = "how-to/storage.md"


def test_its_numbers_are_those_of_the_settings() -> None:
    field = Settings.model_fields["max_payload"]
    (least,) = [limit.ge for limit in field.metadata if hasattr(limit, "ge")]

    assert f"({field.default:,} by default, at least {least:,})" in " ".join(prose(PAGE).split())


def test_the_key_that_it_makes_is_one() -> None:
    (line,) = [
        line
        for block in blocks(PAGE, "console")
        for line in block.text.splitlines()
        if line.startswith("ABEYANCE_ENCRYPTION_KEYS=")
    ]
    done = subprocess.run(
        ["sh", "-c", f'{line} && printf %s "$ABEYANCE_ENCRYPTION_KEYS"'],
        capture_output=True,
        text=True,
        check=True,
    )

    assert Settings(encryption_keys=done.stdout).keyring.sealing_id == "2026-11"


def test_the_command_takes_the_options_that_it_shows() -> None:
    (command,) = [
        block.text for block in blocks(PAGE, "console") if "temporal workflow" in block.text
    ]
    known = "".join(
        subprocess.run([BINARY, *words], capture_output=True, text=True, check=True).stdout
        for words in (["workflow", "show", "--help"], ["options"])
    )

    for option in re.findall(r"--[a-z-]+", command):
        assert option in known


def test_neither_keys_nor_buckets_nor_rules_in_clips_are_loaded_before_they_are_needed() -> None:
    program = (
        "import sys, abeyance, abeyance.worker\n"
        "print({'boto3', 'botocore', 'clips', 'cryptography'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "set()\n"

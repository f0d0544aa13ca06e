"""What docs/how-to/storage.md says is what there is."""

from __future__ import annotations

import re
import subprocess
import sys

from pages import blocks, prose
from temporal_site import BINARY

from abeyance import names
from abeyance.settings import Settings

PAGE = "how-to/storage.md"


def test_every_setting_that_is_named_exists_and_every_one_of_storage_is_named() -> None:
    named = {
        name.lower()
        for text in (prose(PAGE), *(block.text for block in blocks(PAGE, "console")))
        for name in re.findall(r"ABEYANCE_([A-Z_]+)", text)
    }
    ours = {"storage", "storage_shared", "max_payload", "encryption_keys", "ui_origin"}

    assert named <= {*Settings.model_fields}
    assert ours <= named


def test_its_numbers_are_those_of_the_settings() -> None:
    field = Settings.model_fields["max_payload"]
    (least,) = [limit.ge for limit in field.metadata if hasattr(limit, "ge")]

    assert f"({field.default:,} by default, at least {least:,})" in " ".join(prose(PAGE).split())


def test_it_lists_every_search_attribute() -> None:
    for name in names.SEARCH_ATTRIBUTES:
        assert f"`{name}`" in prose(PAGE)


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

"""docs/how-to/transcripts.md has every field of an item, and shows a transcript as it is printed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from pages import read

from abeyance.agents.transcript_view import TranscriptCall, TranscriptItem, TranscriptUsage
from abeyance.cli.transcript import transcript_lines

_PAGE = read("how-to/transcripts.md")


def test_the_table_has_every_field() -> None:
    table = _PAGE.partition("| field |")[2].partition("\n\n")[0]
    told = [
        name
        for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]

    assert sorted(told) == sorted(TranscriptItem.model_fields)


def test_the_roles_and_outcomes_are_those_that_there_are() -> None:
    roles = TranscriptItem.model_fields["role"].annotation
    row = re.search(r"^\| `role` \| (.*) \|$", _PAGE, re.MULTILINE)

    assert row is not None
    assert {*re.findall(r"`(\w+)`", row[1])} == {*getattr(roles, "__args__", ())}


def test_the_printed_transcript_matches_the_page() -> None:
    turn = TranscriptItem(
        role="assistant",
        turn=1,
        at=datetime(2026, 3, 2, 9, 0, 2, tzinfo=UTC),
        text="Let me look at the order.",
        calls=(
            TranscriptCall(call_id="call_1", tool="balance", arguments={"of": "A-17"}),
            TranscriptCall(
                call_id="call_2", tool="transfer", arguments={"amount": 5000, "to": "A-17"}
            ),
        ),
        model="gpt-5",
        usage=TranscriptUsage(input_tokens=412, output_tokens=31),
    )
    result = {"role": "tool", "turn": 2, "tool": "balance", "call_id": "call_1"}
    items: list[dict[str, Any]] = [
        TranscriptItem(role="user", turn=1, text="Refund A-17?").model_dump(mode="json"),
        turn.model_dump(mode="json"),
        TranscriptItem.model_validate(
            {**result, "result": {"of": "A-17", "euros": 70}, "outcome": "success"}
        ).model_dump(mode="json"),
    ]
    printed = [
        f"{line.label:<11}{line.text}".rstrip() for item in items for line in transcript_lines(item)
    ]

    assert "\n".join(printed) in _PAGE

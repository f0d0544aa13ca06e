"""A transcript as a person reads it in a terminal."""

from __future__ import annotations

from typing import Any

from abeyance.agents.transcript_view import (
    TranscriptCall,
    TranscriptItem,
    TranscriptMedia,
    TranscriptUsage,
)
from abeyance.cli.transcript import transcript_lines


def lines(**about: Any) -> list[str]:
    item = TranscriptItem(turn=1, **about).model_dump(mode="json")
    return [f"{label}|{text}" for label, text in transcript_lines(item)]


def test_a_turn_tells_calls_and_what_it_cost() -> None:
    calls = (
        TranscriptCall(call_id="c1", tool="pay", arguments={"to": "ä", "rest": [1, None]}),
        TranscriptCall(call_id="c2", tool="pay", arguments='{"to": '),
        TranscriptCall(call_id="c3", tool="pay", arguments={"text": "x" * 1_000}),
    )
    usage = TranscriptUsage(input_tokens=5, output_tokens=6, cached_tokens=4)

    told = lines(
        role="assistant",
        calls=calls,
        usage=usage,
        model="gpt",
        finish_reason="length",
        interrupted=True,
    )
    assert told[0] == 'turn 1|calls pay(to="ä", rest=[1, null])  c1'
    assert told[1] == '|calls pay({"to": )  c2'
    assert told[2].endswith("...)  c3")
    assert len(told[2]) < 400
    assert told[3] == "|(interrupted)"
    assert told[4] == "|--  gpt  5 tokens in (4 cached), 6 out  finish reason: length"


def test_a_result_tells_how_the_call_went() -> None:
    about = {"role": "tool", "tool": "pay", "call_id": "c1"}

    assert lines(**about, outcome="success", result="sent") == ["result|pay  c1", "|sent"]
    assert lines(**about, outcome="denied", result="no")[0] == "denied|pay  c1"
    assert lines(**about, outcome="retried", result="again")[0] == "retry|pay  c1"
    assert lines(**about, outcome="interrupted", result=None)[0] == "stopped|pay  c1"
    unasked = lines(**about, outcome="success", result="sent", approval={"grant": "g", "by": "ada"})
    assert unasked[1] == "|(ran unasked, under the grant g of ada)"
    assert lines(**about, outcome="success", result={"a": "b" * 120})[1].startswith('|{\n  "a"')


def test_a_long_text_is_cut_and_says_so() -> None:
    (told,) = lines(role="user", text="line\n" * 100)

    assert told.count("\n") == 40
    assert told.endswith("... (500 characters in 101 lines; --json prints all of it)")


def test_a_message_tells_who_sent_it_and_media_what_they_are() -> None:
    media = (
        TranscriptMedia(media_type="image/png", bytes=7),
        TranscriptMedia(media_type="image/png", url="https://x.example/a.png"),
    )

    assert lines(role="user", text="quick", sender="ada", message_id="m1") == [
        "message|from ada, message m1",
        "|quick",
    ]
    assert lines(role="user", media=media) == [
        "input|",
        "|(image/png, 7 bytes)",
        "|(image/png, https://x.example/a.png)",
    ]
    assert lines(role="system", text="be nice") == ["system|be nice"]

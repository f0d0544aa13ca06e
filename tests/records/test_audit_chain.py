"""The lines of an audit verify themselves: every change is found, with the line that has it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from abeyance.keyring import SigningKey, VerifyingKey
from abeyance.records.audit_chain import Chain, verify

KEY = SigningKey.parse(base64.b64encode(bytes(range(32))).decode())
PUBLIC = VerifyingKey.parse(KEY.public)

CONTENTS: list[dict[str, Any]] = [
    {"type": "run.started", "run_id": "r", "time": "2026-03-02T09:00:00Z", "actor": "bea"},
    {"type": "interrupt.opened", "run_id": "r", "shown": {"prompt": "Zahlen? é€😀", "digest": "d"}},
    {"type": "interrupt.answered", "run_id": "r", "answer": {"approved": True, "amount": 0.1}},
    {"type": "end", "run_id": "r", "run": {"status": "completed"}},
]


def written(key: SigningKey | None, contents: list[dict[str, Any]] = CONTENTS) -> bytes:
    chain = Chain(key)
    return b"".join(chain.add(content) + b"\n" for content in contents)


def faults(data: bytes, key: VerifyingKey | None = None) -> list[str]:
    return [str(fault) for fault in verify(data, key).faults]


@pytest.mark.parametrize("key", [KEY, None])
def test_an_unchanged_audit_verifies(key: SigningKey | None) -> None:
    found = verify(written(key), None if key is None else PUBLIC)

    assert found.faults == ()
    assert (found.lines, found.last["lines"], found.is_signed) == (4, 4, key is not None)
    assert found.last["run"] == {"status": "completed"}


def test_every_line_is_canonical_and_names_the_hash_of_the_bytes_before() -> None:
    lines = written(None).splitlines()
    parsed = [json.loads(line) for line in lines]

    assert [rfc8785.dumps(each) for each in parsed] == lines
    assert [each["n"] for each in parsed] == [1, 2, 3, 4]
    assert [each["prev"] for each in parsed] == [
        None,
        *(hashlib.sha256(line).hexdigest() for line in lines[:-1]),
    ]


def test_any_one_byte_that_is_changed_is_found_in_its_line() -> None:
    data = written(KEY)
    for place in range(0, len(data), 7):
        changed = bytearray(data)
        changed[place] ^= (0x01, 0x20, 0x80)[place % 3]
        found = verify(bytes(changed), PUBLIC).faults
        assert [fault.line for fault in found] == [data.count(b"\n", 0, place) + 1], place


def test_any_byte_but_the_last_signature_is_found_without_a_key_too() -> None:
    data = written(KEY)
    free = data.rindex(b'"signature":"') + len(b'"signature":"')
    after = data.index(b'"', free)
    for place in range(0, len(data), 7):
        changed = bytearray(data)
        changed[place] ^= 1
        found = [fault.line for fault in verify(bytes(changed)).faults]
        expected = [] if free <= place < after else [data.count(b"\n", 0, place) + 1]
        assert found == expected, place


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (b'"bea"', "line 1: its `hash` is not the hash of its content"),
        (b'"n":3', "line 3: its `hash` is not the hash of its content"),
        (b'{"actor', "line 1: it is not a JSON object"),
    ],
)
def test_a_changed_audit_names_the_line_and_the_mismatch(change: bytes, told: str) -> None:
    data = written(None)
    place = data.index(change)
    changed = data[:place] + b"X" * len(change) + data[place + len(change) :]
    if change == b'"n":3':
        changed = data.replace(change, b'"n":7')
    if change == b'"bea"':
        changed = data.replace(change, b'"eve"')

    assert faults(changed) == [told]


def test_an_additional_space_is_not_in_the_canonical_form() -> None:
    data = written(KEY).replace(b'"actor":', b'"actor": ')

    assert faults(data) == ["line 1: it is not in the canonical form of RFC 8785"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([1, 2, 3], "line 3: what followed was cut off: no line is 'end' or 'open'"),
        ([2, 3, 4], "line 1: it is not the first line: what was before it was cut off"),
        ([1, 2, 4], "line 3: its number is 4, after 2: lines were taken out, or moved"),
        ([1, 3, 2, 4], "line 2: its number is 3, after 1: lines were taken out, or moved"),
        ([], "line 0: what followed was cut off: no line is 'end' or 'open'"),
    ],
)
def test_lines_that_are_missing_or_moved_are_found(lines: list[int], told: str) -> None:
    whole = written(KEY).splitlines(keepends=True)

    assert faults(b"".join(whole[number - 1] for number in lines))[0] == told


def test_a_tail_that_is_cut_off_anywhere_is_found() -> None:
    data = written(KEY)

    assert all(faults(data[:length]) for length in range(len(data)))


def test_a_rewritten_chain_has_no_valid_signature() -> None:
    eve = SigningKey.parse(base64.b64encode(os.urandom(32)).decode())
    forged = [{**CONTENTS[0], "actor": "eve"}, *CONTENTS[1:]]

    assert faults(written(None, forged)) == []
    assert faults(written(None, forged), PUBLIC)[0] == "line 1: it is not signed"
    told = "line 1: its `signature` is not one of this key for its `hash`"
    assert faults(written(eve, forged), PUBLIC)[0] == told


def test_a_line_of_another_run_is_found() -> None:
    data = written(None, [CONTENTS[0], {**CONTENTS[3], "run_id": "q"}])

    assert faults(data) == ["line 2: it is of another run than line 1: 'q'"]


def test_a_line_after_the_last_is_a_fault() -> None:
    data = written(None, [*CONTENTS, CONTENTS[1]])

    assert faults(data) == ["line 5: it follows the last line, of the type 'end'"]


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(st.characters(exclude_categories=[]), max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(st.characters(exclude_categories=[]), max_size=3), inner)
        ),
    )
)
def test_every_value_has_a_line_that_verifies(value: Any) -> None:
    data = written(None, [{"type": "end", "run_id": "r", "value": value}])

    assert faults(data) == []
    assert rfc8785.dumps(verify(data).last["value"]) in data

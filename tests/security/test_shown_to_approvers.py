"""Text that people decide by hides and reorders nothing: invisible characters appear as code points.

tests/browser/test_inbox_values.py tests this in a browser, tests/cli/test_calls.py on the command line.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from abeyance.cli.formatting import readable
from abeyance.core.text import UNSEEN, visible
from abeyance.workflows.details import code

FOLDER = Path(__file__).parents[2] / "api" / "inbox"
TURNED = "Pay \u202e0052 rosivda ot\u202c?"
RANGES = [
    (0x00, 0x08),
    (0x0B, 0x1F),
    (0x7F, 0x9F),
    (0xAD, 0xAD),
    (0x061C, 0x061C),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x2069),
    (0xFEFF, 0xFEFF),
    (0xE0000, 0xE007F),
]


def test_reordered_text_is_shown_in_its_stored_order() -> None:
    told = "Pay <U+202E>0052 rosivda ot<U+202C>?"

    assert visible(TURNED) == told
    assert readable(TURNED) == told
    assert code(TURNED) == f"`{told}`"


@pytest.mark.parametrize(("first", "last"), RANGES)
def test_every_control_and_every_invisible_character_is_a_code_point(first: int, last: int) -> None:
    for number in range(first, last + 1):
        point = f"<U+{number:04X}>"
        assert visible(f"a{chr(number)}b") == f"a{point}b"
        # A terminal and a code span show those that are spaces as spaces.
        assert readable(f"a{chr(number)}b") == f"a{point}b"
        assert code(f"a{chr(number)}b") in (f"`a{point}b`", "`a b`")


@pytest.mark.parametrize(
    "text", ["two\nlines\tand a tab", "größer", "漢字", "שלום", "مرحبا", "❤️", "😀", "<U+202E>"]
)
def test_text_of_every_script_stays_as_it_is(text: str) -> None:
    assert visible(text) == text
    assert readable(text) == text.replace("\t", " ")


def test_the_page_has_the_same_table() -> None:
    program = (FOLDER / "markup.js").read_text("utf-8")
    (written,) = re.findall(r"new RegExp\(\n(.*?)\n  \"gu\"", program, re.DOTALL)
    pattern = "".join(re.findall(r'"(.*)"', written)).replace("\\\\", "\\")
    pattern = re.sub(r"\\u\{([0-9a-f]{5})\}", r"\\U000\1", pattern)

    assert [point for point in range(0x110000) if re.match(pattern, chr(point))] == [
        point for point in range(0x110000) if UNSEEN.match(chr(point))
    ]


def test_all_that_the_page_writes_goes_through_it_and_keeps_its_direction_to_itself() -> None:
    programs = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.js")}
    for program in programs.values():
        for value in re.findall(r"\.(?:textContent|innerText) = (.*);", program):
            # The value is a text of the page itself, or was made visible.
            assert re.match(r'visible\(|""$|(problem|failure)Text\(|"[^"$]*"$', value), value
        assert not re.search(r"createTextNode|\.value = JSON", program)
    assert programs["markup.js"].count(".append(...") == 1
    assert "visible(child)" in programs["markup.js"]
    assert "main * { unicode-bidi: isolate; }" in (FOLDER / "inbox.css").read_text("utf-8")

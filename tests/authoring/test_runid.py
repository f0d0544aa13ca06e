"""The ids of runs."""

from __future__ import annotations

import pytest

from abeyance.errors import Code, Refusal
from abeyance.util import (
    checked_run_id,
    generated_run_id,
    notification_workflow_id,
    notifications_prefix,
)


@pytest.mark.parametrize("run_id", ["a", "order-2026_03", "A" * 200, "-", "0"])
def test_letters_digits_underscores_and_hyphens_make_an_id(run_id: str) -> None:
    assert checked_run_id(run_id) == run_id


@pytest.mark.parametrize(
    ("run_id", "invalid", "told"),
    [
        ("", [], "it has 0 characters"),
        ("a" * 201, [], "it has 201 characters"),
        ("a b", [" "], "it contains ' '"),
        ("a\n", ["\n"], "it contains '\\n'"),
        ("a/b.c/d", [".", "/"], "it contains '.', '/'"),
        ("ü" * 300, ["ü"], "it contains 'ü'"),
        ("a:b;c%", ["%", ":", ";"], "it contains '%', ':', ';'"),
    ],
)
def test_an_invalid_run_id_is_refused_with_the_fault_and_the_rule(
    run_id: str, invalid: list[str], told: str
) -> None:
    with pytest.raises(Refusal) as caught:
        checked_run_id(run_id)

    assert caught.value.code is Code.INVALID_RUN_ID
    assert told in caught.value.message
    assert "1 to 200 characters out of letters, digits, '_' and '-'" in caught.value.message
    assert caught.value.details == {"invalid_characters": invalid, "rule": "^[A-Za-z0-9_-]{1,200}$"}


def test_a_refusal_does_not_grow_with_the_id() -> None:
    with pytest.raises(Refusal) as caught:
        checked_run_id("".join(map(chr, range(256, 5_000))))

    assert len(caught.value.details["invalid_characters"]) == 50
    assert len(caught.value.message) < 1_000


@pytest.mark.parametrize("graph", ["refund", "a.b", "x" * 100])
def test_a_generated_id_names_its_graph_and_is_new_each_time(graph: str) -> None:
    made = {generated_run_id(graph) for _ in range(100)}

    assert len(made) == 100
    for run_id in made:
        assert checked_run_id(run_id).startswith(graph.replace(".", "-"))


@pytest.mark.parametrize("id_", ["a", "a" * 200, "\u00fc" * 100])
def test_workflow_ids_made_of_the_longest_ids_fit_temporals_stores(id_: str) -> None:
    execution, reminder = "0" * 36, "sha256:" + "0" * 64
    made = [
        notification_workflow_id(id_, execution, "12345678"),
        notification_workflow_id(id_, execution, reminder),
        generated_run_id("g" * 100),
    ]

    assert max(len(each.encode()) for each in made) <= 255
    assert len({*made}) == len(made)
    assert made[1].startswith(notifications_prefix(id_))
    assert notification_workflow_id(id_, execution, "1") != notification_workflow_id(
        id_, execution, "2"
    )

"""The start of a run, as it is sent to Temporal, and the starts that are refused before."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel, Field

from abeyance import START, Graph
from abeyance.client.start import StartPlan
from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal

numbers = count()


class State(BaseModel):
    text: str = ""
    number: int = Field(default_factory=lambda: next(numbers))


def graph_of(state: Any = State, retries: int = 3) -> Graph:
    graph = Graph("g", state=state)
    graph.node(name="a", retries=retries)(lambda: None)
    graph.edge(START, "a")
    return graph


def launch(given: Any = None, graph: Graph | None = None, **about: Any) -> StartPlan:
    told: dict[str, Any] = {
        "run_id": None,
        "conversation_id": None,
        "session_type": "agent",
        "labels": {},
        "limits": Limits(),
        "started_by": "ada",
    }
    return StartPlan.of(graph or graph_of(), given or {}, **{**told, **about})


def test_a_launch_has_an_id_that_names_the_graph_and_says_who_started_it() -> None:
    start = launch(labels={"team": "blue"}, conversation_id="c1").start

    assert start.run_id.startswith("g-")
    assert (start.started_by, start.labels, start.conversation_id) == (
        "ada",
        {"team": "blue"},
        "c1",
    )


def test_the_same_graph_and_input_are_the_same_start_whatever_defaults_are_made() -> None:
    one, same = launch({"text": "a"}, run_id="r1"), launch({"text": "a"}, run_id="r1")

    assert one.values != same.values
    assert one.start.digest == same.start.digest


@pytest.mark.parametrize(
    "other",
    [
        {"given": {"text": "b"}},
        {"given": {"text": "a", "number": 5}},
        {"given": {"text": "a"}, "graph": graph_of(retries=1)},
    ],
)
def test_starts_with_another_graph_or_input_have_another_digest(other: dict[str, Any]) -> None:
    assert launch({"text": "a"}).start.digest != launch(**other).start.digest


def code_of(**wrong: Any) -> Code:
    with pytest.raises(Refusal) as caught:
        launch(**wrong)
    return caught.value.code


def test_an_input_that_no_payload_can_hold_is_refused_with_its_size() -> None:
    with pytest.raises(Refusal) as caught:
        launch({"text": "x" * 1_900_000})

    assert caught.value.code is Code.PAYLOAD_TOO_LARGE
    assert caught.value.details["limit"] == 1_900_000
    assert caught.value.details["actual"] > 1_900_000


def test_graph_and_input_have_to_fit_together() -> None:
    graph = Graph("g", state=State)
    for number in range(10):
        graph.interrupt(f"a{number}", prompt="?", payload="x" * 99_000)
        graph.edge(START, f"a{number}")

    launch({"text": "x" * 500_000}, graph)
    assert code_of(given={"text": "x" * 1_000_000}, graph=graph) is Code.PAYLOAD_TOO_LARGE


def test_a_name_of_a_starter_that_is_too_long_for_lists_is_refused() -> None:
    assert code_of(started_by="x" * 2_000) is Code.PAYLOAD_TOO_LARGE


@pytest.mark.parametrize(
    ("wrong", "pointers"),
    [
        ({"conversation_id": ""}, ["/conversation_id"]),
        ({"conversation_id": ".."}, ["/conversation_id"]),
        ({"conversation_id": "two\nlines"}, ["/conversation_id"]),
        ({"conversation_id": "x" * 201}, ["/conversation_id"]),
        ({"conversation_id": "\u00fc" * 101}, ["/conversation_id"]),
        ({"session_type": ""}, ["/session_type"]),
        ({"session_type": 7}, ["/session_type"]),
        ({"labels": {"note": "x" * 257}}, ["/labels/note"]),
        ({"labels": {str(number): "" for number in range(21)}}, ["/labels"]),
        ({"session_type": "", "labels": {"note": 7}}, ["/session_type", "/labels/note"]),
    ],
)
def test_invalid_conversation_ids_and_labels_of_a_start_are_refused(
    wrong: dict[str, Any], pointers: list[str]
) -> None:
    with pytest.raises(Refusal) as caught:
        launch(**wrong)

    assert caught.value.code is Code.INVALID_BODY
    assert [entry["pointer"] for entry in caught.value.details["errors"]] == pointers


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (Limits(max_parallel_visits=0), "max_parallel_visits is 0, and the minimum is 1"),
        (Limits(max_queue_size=0), "max_queue_size is 0"),
        (Limits(continue_as_new_after=2), "continue_as_new_after is 2, and the minimum is 3"),
        (Limits(grace=-1), "grace is -1, and the minimum is 0"),
        (Limits(grace=float("nan")), "grace is nan"),
        (Limits(grace=float("inf")), "grace is inf"),
        (Limits(pause_timeout=-1), "pause_timeout is -1"),
        (Limits(max_visits="many"), "max_visits is 'many': Input should be a valid integer"),  # type: ignore[arg-type]
        (Limits(allowed_actions=5), "allowed_actions is 5: "),  # type: ignore[arg-type]
        (Limits(allowed_actions=("\ud800",)), r"allowed_actions/0 is ('\ud800',): "),
    ],
)
def test_limits_that_no_run_can_live_with_are_refused(limits: Limits, told: str) -> None:
    with pytest.raises(Refusal) as caught:
        launch(limits=limits)
    assert caught.value.code is Code.INVALID_BODY
    assert told in caught.value.message


def test_wrong_ids_and_inputs_are_refused() -> None:
    assert code_of(run_id="a b") is Code.INVALID_RUN_ID
    assert code_of(given={"nope": 1}) is Code.INVALID_INPUT


def test_a_run_carries_its_graph_without_the_schema_of_the_input_that_it_was_checked_against() -> (
    None
):
    graph = graph_of()
    made = launch(graph=graph)
    _, carried, values, _ = made.arguments

    assert graph.build().input_schema is not None
    assert carried == replace(graph.build(), input_schema=None)
    assert made.start.graph_version == graph.build().version
    assert values["graph:g"]["text"] == ""

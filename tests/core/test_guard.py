"""An agent does not end while messages for it are unread."""

from __future__ import annotations

import pytest
from core_agents import CLERK, call, done, helper, results, reviewing, turn
from core_drive import Drive, reader

from abeyance.core.state import Limits


def turns(run: Drive) -> list[list[str]]:
    """The ids of the messages that each turn was handed."""
    return [[message.message_id for message in order.inbox] for order in run.orders("model")]


def test_a_message_that_comes_in_time_is_read_by_another_turn() -> None:
    run = reviewing()
    run.send("m1")
    run.send("m2")
    run.finish("model", {"output": "first"})
    assert (run.status, turns(run)) == ("running", [[], ["m1", "m2"]])
    assert run.orders("model")[-1].address == f"{CLERK};node:model:2"
    run.finish("model", {"output": "second"})

    assert (run.status, run.values) == ("completed", {"x": "second"})


def test_a_message_is_read_by_the_next_turn_in_any_case() -> None:
    run = reviewing()
    run.send("m1")
    turn(run, call("c1"))
    run.send("m2", priority="high")
    done(run, "c1", {"content": 1})

    assert turns(run) == [[], ["m2", "m1"]]
    assert results(run) == [{"content": 1}]


def test_a_turn_that_goes_on_anyway_is_not_counted() -> None:
    run = reviewing(limits=Limits(max_guard_turns=0))
    run.send("m1")
    run.finish("model", goto="model")

    assert (run.status, turns(run)) == ("running", [[], ["m1"]])


def test_what_comes_after_so_many_turns_is_reported_as_the_guards() -> None:
    run = reviewing(limits=Limits(max_guard_turns=2))
    for number in range(3):
        run.send(f"m{number}")
        run.finish("model", {"output": number})

    assert turns(run) == [[], ["m0"], ["m1"]]
    assert (run.status, run.values) == ("completed", {"x": 2})
    assert [(each.message_id, each.reason) for each in run.state.mailbox.undelivered] == [
        ("m2", "guard")
    ]
    (fact,) = run.facts("message.undelivered")
    assert fact.data == {"message_id": "m2", "reason": "guard"}


def test_the_guard_does_not_wait_for_what_is_for_somebody_else() -> None:
    run = reviewing(after=(reader(),))
    run.send("m1", target="work")
    run.finish("model", {"output": 1})

    assert run.running == ["work"]
    assert [message.message_id for message in run.orders("work")[0].inbox] == ["m1"]


@pytest.mark.parametrize(
    "target", ["review", "clerk", "model", "graph:g;node:review", CLERK, f"{CLERK};node:model"]
)
def test_who_writes_to_an_agent_names_it_or_its_node_or_its_address(target: str) -> None:
    run = reviewing(after=(reader(),))
    run.send("m1", target=target)
    run.finish("model", {"output": 1})

    assert turns(run) == [[], ["m1"]]


def test_who_writes_to_an_earlier_turn_is_read_by_the_next() -> None:
    run = reviewing()
    run.finish("model", goto="model")
    run.finish("model", goto="model")
    run.send("m1", target=f"{CLERK};node:model:2")
    run.finish("model", {"output": 1})

    assert turns(run)[-2:] == [[], ["m1"]]


def test_of_two_agents_the_one_that_is_named_reads() -> None:
    run = reviewing(helper())
    turn(run, call("c1", "ask_helper"))
    run.send("m1", target="clerk")
    run.send("m2", target="helper")
    run.send("m3", target="ask_helper")
    run.finish("model", {"output": "helped"})
    run.finish("model", {"output": "helped"})

    assert turns(run) == [[], [], ["m2", "m3"], ["m1"]]


def test_no_agent_of_an_unknown_name_is_written_to() -> None:
    from abeyance.core import events

    run = reviewing(helper())
    message = events.Message(message_id="m1", text="x", sender="ada", target="expert")
    refusal = run.refused(events.MessageSent, message=message)

    assert refusal.code == "unknown_node"
    assert "'clerk'" in refusal.message
    assert "'helper'" in refusal.message

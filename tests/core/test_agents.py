"""Agents: what a run keeps of an ended agent, and that no agent ends before it reads its messages."""

from __future__ import annotations

import pytest
from core_agents import CLERK, agent_node, call, done, failed, helper, results, reviewing, turn
from core_drive import CONTROL, Drive, chain, edge, graph, nested, reader

from abeyance.core import events
from abeyance.core.items import call_results, transcripts
from abeyance.core.spec import START, GoTo
from abeyance.core.state import Limits

REMEMBERS = ("transcript", "agent_state")
KEY = "graph:g/review"


def looping(remembers: tuple[str, ...] = REMEMBERS) -> Drive:
    """Start a run whose agent is entered again as long as its output is `more`."""
    node = agent_node("review", remembers=remembers)
    again = edge("review", "review", {"x": "more"})
    return Drive(graph(node, "end", ways=[(START, "review"), again, edge("review", "end", "else")]))


def test_the_conversation_of_an_agent_is_known_while_it_lasts_and_afterwards() -> None:
    run = reviewing()
    assert transcripts(run.state) == {}
    turn(run, call("c1"), transcript="t1")
    assert (transcripts(run.state), run.state.transcripts) == ({CLERK: "t1"}, {})
    done(run, "c1", 1)
    run.finish("model", {"output": 1, "transcript": "t2"})

    assert (run.status, transcripts(run.state)) == ("completed", {CLERK: "t2"})


def test_only_the_graph_of_an_agent_has_a_conversation() -> None:
    inner = chain("deep", name="inner", fields={"transcript": "last"})
    run = Drive(chain(nested("n", inner)))
    run.finish("deep", {"transcript": "t1"})

    assert transcripts(run.state) == {}


def test_an_agent_that_does_not_remember_begins_anew() -> None:
    run = looping(remembers=())
    run.finish("model", {"output": "more", "transcript": "t1", "agent_state": {"trusted": True}})

    values = run.orders("model")[-1].values
    assert (values.keys() & {"transcript", "agent_state"}, run.state.agent_memory) == (set(), {})
    assert transcripts(run.state) == {CLERK: "t1"}


def test_an_agent_that_remembers_goes_on_where_its_last_visit_was() -> None:
    run = looping()
    run.finish("model", {"output": "more", "transcript": "t1", "agent_state": {"trusted": True}})

    order = run.orders("model")[-1]
    assert order.address == "graph:g;node:review:2;agent:clerk;node:model"
    assert order.values["transcript"] == "t1"
    assert order.values["agent_state"] == {"trusted": True}
    assert "output" not in order.values
    run.finish("model", {"output": "enough", "transcript": "t2"})
    assert transcripts(run.state) == {
        CLERK: "t1",
        "graph:g;node:review:2;agent:clerk": "t2",
    }
    assert run.state.agent_memory == {KEY: {"transcript": "t2", "agent_state": {"trusted": True}}}


def test_an_agent_that_failed_is_remembered_too() -> None:
    node = agent_node("review", remembers=REMEMBERS, on_error=GoTo(node="again"))
    spec = graph(node, "again", ways=[(START, "review"), ("again", "review")])
    run = Drive(spec)
    turn(run, call("c1"), transcript="t1", agent_state={"seen": 1})
    failed(run, "c1", fatal=True)
    assert run.state.agent_memory[KEY] == {"transcript": "t1", "agent_state": {"seen": 1}}
    run.finish("again")

    assert run.orders("model")[-1].values["transcript"] == "t1"


def test_an_agent_left_before_its_first_words_is_remembered_as_it_began() -> None:
    node = agent_node("review", remembers=REMEMBERS, on_error=GoTo(node="end"))
    run = Drive(graph(node, "end", ways=[(START, "review")]))
    run.fail("model")

    assert run.state.agent_memory == {KEY: {}}
    assert transcripts(run.state) == {}


def test_a_cancelled_run_still_knows_its_conversations() -> None:
    run = reviewing(helper())
    turn(run, call("c1", "ask_helper"), transcript="t1")
    turn(run, call("h1"), transcript="h1")
    run.cancel(mode="now")

    assert run.status == "cancelled"
    assert transcripts(run.state) == {
        CLERK: "t1",
        f"{CLERK};tool:ask_helper:c1;agent:helper": "h1",
    }


def test_conversations_are_known_after_a_pause_whose_deadline_left_every_branch() -> None:
    inner = "graph:g;node:review;agent:clerk;tool:ask_helper:c1;agent:helper"
    node = agent_node("review", helper(remembers=REMEMBERS), remembers=REMEMBERS)
    run = Drive(graph(node, "end", ways=[(START, "review"), edge("review", "end")]))
    turn(run, call("c1", "ask_helper"), transcript="t1")
    turn(run, call("c2"), transcript="t2")
    run.pause(actor="bob", capabilities=CONTROL, timeout=60.0, on_timeout=GoTo(node="end"))
    run.tick(60)

    assert transcripts(run.state) == {CLERK: "t1", inner: "t2"}
    assert run.state.agent_memory == {KEY: {"transcript": "t1"}}


def test_a_helper_that_remembers_does_so_within_the_visit_of_its_caller() -> None:
    run = reviewing(helper(remembers=REMEMBERS))
    turn(run, call("c1", "ask_helper"))
    run.finish("model", {"output": 1, "transcript": "h1"})
    turn(run, call("c2", "ask_helper"))
    assert run.orders("model")[-1].values["transcript"] == "h1"
    run.finish("model", {"output": 2, "transcript": "h2"})
    assert list(run.state.agent_memory) == [f"{CLERK}/ask_helper"]
    run.finish("model", {"output": 3})

    assert run.state.agent_memory == {}


def test_a_run_keeps_the_last_two_hundred_finished_conversations() -> None:
    run = looping(remembers=())
    for number in range(205):
        run.finish("model", {"output": "more", "transcript": f"t{number}"})

    kept = list(run.state.transcripts.values())
    assert (len(kept), kept[0], kept[-1]) == (200, "t5", "t204")


def test_agent_state_and_transcripts_survive_a_continue_as_new() -> None:
    run = looping()
    run.finish("model", {"output": "more", "transcript": "t1", "agent_state": {"trusted": True}})
    run.feed(events.RotationDue, hard=True)
    run.stopped("model")
    run.read_again()
    run.feed(events.Restored)

    assert run.orders("model")[-1].values["agent_state"] == {"trusted": True}
    assert transcripts(run.state) == {CLERK: "t1", "graph:g;node:review:2;agent:clerk": "t1"}


def test_results_of_calls_are_kept_until_the_turn_that_reads_them_is_over() -> None:
    run = reviewing()
    assert call_results(run.state) == {}
    turn(run, call("c1"), call("c2"), transcript="t1")
    assert call_results(run.state) == {CLERK: {}}
    done(run, "c1", 1)
    before = call_results(run.state)
    done(run, "c2", 2)

    assert before == {CLERK: {"c1": 1}}
    assert call_results(run.state) == {CLERK: {"c1": 1, "c2": 2}}
    run.finish("model", {"output": 1, "transcript": "t2"})
    assert call_results(run.state) == {}


# messages for an agent


def turns(run: Drive) -> list[list[str]]:
    """Return the ids of the messages that each turn was handed."""
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


def test_messages_after_the_last_guard_turn_are_reported_as_undelivered() -> None:
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
def test_a_message_reaches_an_agent_by_its_name_node_or_address(target: str) -> None:
    run = reviewing(after=(reader(),))
    run.send("m1", target=target)
    run.finish("model", {"output": 1})

    assert turns(run) == [[], ["m1"]]


def test_the_next_turn_reads_a_message_to_an_earlier_turn() -> None:
    run = reviewing()
    run.finish("model", goto="model")
    run.finish("model", goto="model")
    run.send("m1", target=f"{CLERK};node:model:2")
    run.finish("model", {"output": 1})

    assert turns(run)[-2:] == [[], ["m1"]]


def test_the_named_one_of_two_agents_reads_a_message() -> None:
    run = reviewing(helper())
    turn(run, call("c1", "ask_helper"))
    run.send("m1", target="clerk")
    run.send("m2", target="helper")
    run.send("m3", target="ask_helper")
    run.finish("model", {"output": "helped"})
    run.finish("model", {"output": "helped"})

    assert turns(run) == [[], [], ["m2", "m3"], ["m1"]]


def test_a_message_to_an_unknown_agent_is_refused_with_the_known_names() -> None:
    run = reviewing(helper())
    message = events.Message(message_id="m1", text="x", sender="ada", target="expert")
    refusal = run.refused(events.MessageSent, message=message)

    assert refusal.code == "unknown_node"
    assert "'clerk'" in refusal.message
    assert "'helper'" in refusal.message

"""Rules in YAML, and the meaning of scalars."""

from __future__ import annotations

import pytest
from yaml_documents import Load

from abeyance import testing
from abeyance.core.json import Json
from abeyance.core.spec import Default


async def test_every_action_of_a_rule_can_be_written(loaded: Load) -> None:
    graph = loaded(
        """
        nodes:
          - {id: classify, kind: "triage_nodes:classify"}
          - {id: act, kind: "triage_nodes:act"}
          - {id: b, kind: "triage_nodes:nothing"}
        rules:
          - id: large
            when: {node: classify, size: large}
            then:
              - {kind: interrupt, prompt: "Sure of {record_id}?", answer_to: sure, timeout: 2d,
                 on_timeout: {default: no}, response: {type: string}}
              - {kind: goto, node: b}
          - {id: again, when: {node: b, again: true}, then: [{kind: retry}]}
          - {id: both, when: {node: b, "deep.both": true}, then: [{kind: parallel, nodes: [act, b]}]}
          - {id: over, when: {verdict: suspicious}, then: [{kind: halt}]}
        """
    )
    run = testing.InMemoryRun(graph, {"record_id": "ok", "size": "large"})
    await run.start()
    (asked,) = await run.interrupts()
    assert (asked.kind, asked.name, asked.prompt) == ("rule", "large", "Sure of ok?")
    assert asked.on_timeout == {"default": "no"}
    await run.advance("2d")

    assert (run.status, run.values["sure"], "acted" in run.values) == ("completed", "no", False)
    halted = await testing.run(graph, {"record_id": "R-7"})
    assert (halted.status, halted.reason) == ("halted", "over")


async def test_branches_of_a_rule_meet_where_the_edges_join_them(loaded: Load) -> None:
    graph = loaded(
        """
        nodes:
          - {id: classify, kind: "triage_nodes:classify"}
          - {id: a, kind: "triage_nodes:nothing"}
          - {id: b, kind: "triage_nodes:nothing"}
          - {id: act, kind: "triage_nodes:act"}
          - {id: skipped, kind: "triage_nodes:nothing"}
          - {id: last, kind: "triage_nodes:nothing"}
        edges: [[START, classify], [[a, b], act], [act, skipped], [skipped, last]]
        rules:
          - id: fan
            when: "?n <- (node-id (id classify))"
            then: [{kind: parallel, nodes: [a, b]}]
          - {id: skip, when: {node: act}, then: [{kind: goto, node: last}]}
        """
    )

    run = await testing.run(graph, {"record_id": "R-7"})
    visited = [
        str(each.address).rpartition("node:")[2]
        async for each in run.events(follow=False)
        if each.type == "node.started"
    ]
    assert visited == ["classify", "a", "b", "act", "last"]
    assert run.status == "completed"


async def test_a_rule_may_be_clips_and_change_what_others_see(loaded: Load) -> None:
    graph = loaded(
        """
        state: {record_id: str, verdict: str, amount: int, ok: bool}
        nodes:
          - {id: classify, kind: "triage_nodes:classify"}
          - {id: last, kind: "triage_nodes:nothing"}
        rules:
          - id: many
            when: {node: classify, verdict: suspicious}
            then: [{kind: assert, fact: alarm, slots: {level: high, about: 7}}]
          - id: large
            when: '(node-id (id classify)) (amount (value ?a&:(> (string-to-field ?a) 100)))'
            then: [{kind: assert, fact: '(alarm (level "higher") (about ?a))'}]
          - id: forget
            when: '?a <- (alarm (level "higher")) (record_id (value "test"))'
            then: [{kind: retract, pattern: '?a'}, {kind: retract, pattern: (alarm)}]
          - id: ask
            when: (alarm (level ?) (about ?))
            then: [{kind: interrupt, prompt: "Is {record_id} bad?", answer_to: ok}]
        """
    )

    async def asked(record: str, amount: int) -> bool:
        run = testing.InMemoryRun(graph, {"record_id": record, "amount": amount})
        await run.start()
        return [each.name for each in await run.interrupts()] == ["ask"]

    given = [("ok-1", 5), ("R-7", 5), ("ok-1", 101), ("test", 5), ("test", 101)]
    assert [await asked(*each) for each in given] == [False, True, True, True, False]


def test_a_rule_supplies_what_a_gate_leaves_out_and_keeps_its_other_actions(loaded: Load) -> None:
    spec = loaded(
        """
        nodes:
          - {id: gate, kind: interrupt, config: {answer_to: ok, requested_capability: pay}}
          - {id: a, kind: "triage_nodes:nothing"}
        rules:
          - id: r
            when: "(node-id (id gate))"
            then:
              - {kind: interrupt, prompt: "Pay?", timeout: 1h, on_timeout: {default: false}}
              - {kind: goto, node: a}
          - {id: second, when: {node: gate}, then: [{kind: interrupt, prompt: "Really?"}]}
        """
    ).build()

    first, *others = spec.questions
    assert (first.name, first.prompt, first.requested_capability) == ("gate", "Pay?", "pay")
    assert (first.timeout, first.on_timeout) == (3600, Default(answer=False))
    assert [question.name for question in others] == ["second"]
    assert [(rule.id, len(rule.actions)) for rule in spec.rules] == [("r", 1), ("second", 1)]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"), ("12:30", "12:30"), ("2026-01-01", "2026-01-01"), ("null", None),
        ("~", None), ("true", True), ("0x1F", 31), ("1e3", 1000), ("-1.5", -1.5), ("'5'", "5"),
        ("!!str 5", "5"), ("!!float 5", 5.0), ("|\n      two\n      lines", "two\nlines\n"),
    ],
)  # fmt: skip
def test_a_scalar_means_what_an_editor_shows(loaded: Load, written: str, meant: Json) -> None:
    spec = loaded(
        "nodes:\n- id: ask\n  kind: interrupt\n  config:\n"
        f"    prompt: Go?\n    payload: {written}\n"
    ).build()

    assert spec.questions[0].payload == meant

"""A graph as a Mermaid flowchart."""

from __future__ import annotations

import re

import pytest

from abeyance import END, START, Graph
from abeyance.authoring.diagram import mermaid

WHOLE = """\
flowchart TD
    e0(["START"])
    e1(["END"])
    e2(["any node"])
    e3(["halted: too risky"])
    n0["check"]
    n1["pay"]
    n2["hold"]
    n3["end"]
    n6{{"approve"}}
    n7{{"sign"}}
    e0 --> n0
    n0 -->|"deep.size = large, n = 1"| n6
    n0 -->|"else"| n7
    j0(("arrived"))
    n1 --- j0
    n7 --- j0
    j0 --> n3
    n6 -->|"decide()"| n1
    n6 -->|"decide()"| e1
    n2 -->|"by code"| n1
    n0 -.->|"Goto or Send"| n1
    n1 -.->|"on error"| n2
    n6 -.->|"after 2d"| n2
    r0{{"big"}}
    n1 -.->|"big: amount = 9"| r0
    r0 -.->|"after 90s"| n2
    r0 -.-> n2
    n7 -.->|"again: x = null"| n7
    e2 -.->|"stop: risk = high"| e3
    e2 -.->|"stop: risk = high"| n2
    e2 -.->|"stop: risk = high"| n1
    subgraph after ["after every kind of end"]
        n4["cleanup"]
        n5["report"]
        n4 --> n5
    end
"""


def test_everything_that_may_lead_somewhere_is_drawn() -> None:
    graph = Graph("g")
    graph.node(name="check", to=["pay"])(lambda: None)
    graph.node(name="pay", on_error="goto:hold")(lambda: None)
    for name in ("hold", "end", "cleanup", "report"):
        graph.node(name=name)(lambda: None)
    graph.interrupt("approve", prompt="?", timeout="P2D", on_timeout="goto:hold")
    graph.interrupt("sign", prompt="?", timeout="P2D")
    graph.edge(START, "check")
    graph.edge("check", "approve", when={"deep.size": "large", "n": 1})
    graph.edge("check", "sign", when="else")
    graph.route("approve", lambda state: "pay", to=["pay", END], name="decide")
    graph.route("hold", lambda state: None, to=["pay"])
    graph.edge(["pay", "sign"], "end", join="arrived")
    ask = {"kind": "interrupt", "prompt": "?", "timeout": 90, "on_timeout": "goto:hold"}
    graph.rule(
        "big", when={"node": "pay", "amount": 9}, then=[ask, {"kind": "goto", "node": "hold"}]
    )
    graph.rule("again", when={"node": "sign", "x": None}, then=[{"kind": "retry"}])
    graph.rule(
        "stop",
        when={"risk": "high"},
        then=[
            {"kind": "halt", "reason": "too risky"},
            {"kind": "parallel", "nodes": ["hold", "pay"]},
        ],
    )
    graph.finally_("cleanup", "report")

    assert mermaid(graph.build()) == WHOLE


ASKING = """\
flowchart TD
    e0(["START"])
    n0["split (before: ask, on error: ask)"]
    n1["one (after: ask)"]
    n2[["legal (before: ask, after: ask)"]]
    n3{{"gate (before: ask)"}}
    n4["mend"]
    e0 --> n0
    j0(("all"))
    n1 --- j0
    j0 --> n2
    n2 --> n3
    n0 -.->|"Goto or Send"| n1
    n2 -.->|"on error"| n4
    n3 -.->|"high: ?n #60;- (node-id (id gate)) (or (risk (value #34;high#34;)) (amount))"| n4
"""


def test_questions_and_nested_graphs_are_drawn() -> None:
    legal = Graph("review")
    legal.node(name="read")(lambda: None)
    legal.edge(START, "read")
    graph = Graph(
        "g", interrupt_before=["split", "legal", "gate"], interrupt_after=["one", "legal"]
    )
    graph.node(name="split", to=["one"], on_error="interrupt")(lambda: None)
    graph.node(name="one")(lambda: None)
    graph.subgraph("legal", legal, on_error="goto:mend")
    graph.interrupt("gate", prompt="?")
    graph.node(name="mend")(lambda: None)
    graph.edge(START, "split")
    graph.edge(["one"], "legal")
    graph.edge("legal", "gate")
    graph.rule("quiet", when="(amount)", then=[{"kind": "assert", "fact": "alarm"}])
    graph.rule(
        "high",
        when="""?n <- (node-id (id gate))
            (or (risk (value "high")) (amount))""",
        then=[{"kind": "retract", "pattern": "?n"}, {"kind": "goto", "node": "mend"}],
    )

    assert mermaid(graph.build()) == ASKING


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ('"] --> x; click n0 "javascript:alert(1)"',
         "#34;#93; --#62; x#59; click n0 #34;javascript:alert(1)#34;"),
        ("<b>&#`|{}", "#60;b#62;#38;#35;#96;#124;#123;#125;"),
        ("1. one", "1#46; one"),
        ("a\nb", "a b"),
        ("größer", "größer"),
        ("x" * 100, "x" * 69 + "..."),
    ],
)  # fmt: skip
def test_texts_of_authors_are_escaped(value: str, shown: str) -> None:
    graph = Graph("g")
    graph.node(name="a")(lambda: None)
    graph.edge(START, "a", when={"field": value})

    (label,) = re.findall(r'\|"(.*)"\|', mermaid(graph.build()))
    assert label == f"field = {shown}"

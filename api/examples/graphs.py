"""Examples of a graph."""

from __future__ import annotations

from typing import Any, Final

GRAPH: Final[dict[str, Any]] = {
    "name": "refund",
    "version": "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "description": "Refunds an order after an approval.",
    "input_schema": {
        "type": "object",
        "properties": {"order_id": {"type": "string"}, "amount": {"type": "number"}},
        "required": ["order_id", "amount"],
    },
}

GRAPH_SPEC: Final[dict[str, Any]] = {
    **GRAPH,
    "guarded_by": ["refunds:approve"],
    "fields": {"order_id": {"reducer": "last"}, "amount": {"reducer": "last"}},
    "open_values": False,
    "nodes": {
        "pay": {
            "kind": "function",
            "id": "pay",
            "description": "Pay the money back.",
            "timeout": 30.0,
            "retry": {
                "retries": 3,
                "first": 1.0,
                "factor": 2.0,
                "most": 60.0,
                "retry_for": None,
            },
            "heartbeat": 5.0,
            "local": False,
            "on_error": {"kind": "fail"},
            "to": [],
        }
    },
    "edges": [
        {
            "sources": ["START"],
            "target": "pay",
            "condition": {"kind": "always"},
            "join": "all",
        }
    ],
    "routes": [],
    "finally_nodes": [],
}

DIAGRAM: Final = """\
flowchart TD
    e0(["START"])
    n0{{"approve"}}
    n1["pay"]
    e0 --> n0
    n0 -->|"decision.approved = true"| n1
"""

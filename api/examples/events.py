"""Examples of events, and the audit that is made of them."""

from __future__ import annotations

import json
from typing import Any, Final

EVENT: Final[dict[str, Any]] = {
    "id": "00064c9a8a17f40000190000019c1d2e3f4a7b5c8d9e0f1a2b3c4d5e5f0c9d2a",
    "time": "2026-03-02T09:00:01Z",
    "type": "interrupt.opened",
    "run_id": "refund-4711",
    "address": "graph:refund;node:approve",
    "actor": None,
    "data": {"id": "refund-4711.b276f6238dab3ba5", "name": "approve"},
}

EVENT_STREAM: Final = "\n".join(
    [f"id: {EVENT['id']}", f"event: {EVENT['type']}", f"data: {json.dumps(EVENT)}", "", ""]
)

STREAM_EVENT: Final[dict[str, Any]] = {
    **EVENT,
    "id": "AQAGYOq9bQQt7ump2NeWPwAHAKLZzBzOwp6lnfg7AAcA0JTNHA",
    "graph": "refund",
    "event_id": EVENT["id"],
}

STREAM_OF_ALL: Final = "\n".join(
    [
        f"id: {STREAM_EVENT['id']}",
        f"event: {STREAM_EVENT['type']}",
        f"data: {json.dumps(STREAM_EVENT)}",
        *("", ""),
    ]
)

AUDIT: Final = (
    json.dumps(
        {
            "actor": "ada",
            "answer": True,
            "capability": "refunds:approve",
            "data": {
                "answer_sha256": "sha256:b5bea41b6c623f7c09f1bf24dcae58ebab3c0cdd90ad966bc43a45b4"
                "4867e12b",
                "id": "refund-4711.b276f6238dab3ba5",
                "name": "approve",
            },
            "hash": "3c1c8d2e4b2f5d7d1f0cbb5ad64bb1fd9f3b2f9f0f2ee80d2a7f5f1f8a7a6d15",
            "id": EVENT["id"],
            "n": 5,
            "prev": "9a1f0e6f1b7c2a0f3f4f0d8d6cb3de8fda5cbb4b2e4c9e2f7c4e3ddc5d6b1a20",
            "run_id": "refund-4711",
            "time": "2026-03-02T09:04:10Z",
            "type": "interrupt.answered",
        },
        separators=(",", ":"),
    )
    + "\n"
)

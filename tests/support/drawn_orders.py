"""What chance sends to a run: right, wrong, and such as no program of ours would write."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from abeyance import views
from abeyance.core.json import Json
from abeyance.core.state import Limits


def limits(random: Random) -> Limits:
    """Bounds that are often reached."""
    return Limits(
        max_queue_size=random.choice([1, 2, 3, 100]),
        max_message_length=50,
        allowed_actions=random.choice([(), ("mine",)]),
        max_parallel_visits=random.choice([1, 2, 50]),
        pause_timeout=random.choice([None, None, 0.4]),
        grace=random.choice([0.2, 2.0]),
        finally_timeout=5,
        task_bytes=random.choice([4_000, 1_000_000]),
        continue_as_new_after=random.choice([6, 12, 40, 1500]),
    )


def message(random: Random, nodes: Sequence[str]) -> dict[str, Any]:
    """A message. Of few ids and texts, so that many are repeats and some conflicts."""
    id_ = f"m{random.randint(0, 8)}"
    order: dict[str, Any] = {"message_id": id_, "text": f"{random.choice('aaab')} #{id_}#"}
    if random.random() < 0.2:
        order["priority"] = random.choice(["high", "low"])
    if random.random() < 0.15:
        order["ttl"] = random.choice([0.05, 0.4, 3600])
    if random.random() < 0.3:
        order["target"] = random.choice([*nodes, "model", "nowhere"])
    if random.random() < 0.1:
        order |= random.choice(
            [
                {"text": ""},
                {"text": "x" * 60},
                {"text": "enough", "message_id": "enough"},
                {"action": "mine", "params": {"a": 1}},
                {"action": "other"},
                {"metadata": {"deep": [[[1.5]]]}},
                {"metadata": {"infinite": float("inf")}},
                {"text": "\ud800 half a character"},
            ]
        )
    return order


def pause(random: Random, nodes: Sequence[str]) -> dict[str, Any]:
    """A pause, half of them with a deadline."""
    order: dict[str, Any] = {"actor": "bob", "mode": random.choice(["after-node", "now"])}
    if random.random() < 0.5:
        order["timeout"] = random.choice([0.05, 0.3, 3600])
        ways = ["halt", *(f"goto:{node}" for node in [*nodes, "nowhere", "END"])]
        order["on_timeout"] = random.choice([*["resume"] * len(ways) * 2, *ways])
    return order


def take(random: Random, graph: str, nodes: Sequence[str]) -> dict[str, Any]:
    """An order to take messages in the name of a visit, which may not be there."""
    order: dict[str, Any] = {"start": random.choice([0, 0, 1, 5])}
    order["visit"] = f"graph:{graph};node:{random.choice([*nodes, 'nowhere'])}"
    return order | random.choice([{"upto": 1}, {"upto": 3}, {"upto": 100}, {"most": 2}])


def edit(random: Random, version: int) -> dict[str, Any]:
    """An edit of the values, some stale, some of what is not there, one that is no JSON."""
    patch = random.choice([{"count": 2}, {"task": "x"}, {"nothing": 1}, {"count": float("nan")}])
    return {"patch": patch, "version": version + random.choice([0, 0, 0, -1])}


def deadline(random: Random, ids: Sequence[str]) -> dict[str, Any]:
    """A deadline that is moved, or cannot be."""
    order: dict[str, Any] = random.choice(
        [
            {"timeout": 0.05},
            {"timeout": 3600},
            {"deadline": None},
            {"on_timeout": random.choice(["halt", "goto:late", "goto:nowhere"])},
            {"deadline": "2020-01-01T00:00:00Z"},
            {"timeout": 0.3, "on_timeout": "goto:END"},
        ]
    )
    order["interrupt_id"] = random.choice([*ids] or ["none"])
    return order


def junk(random: Random) -> Json:
    """What is no order of any kind."""
    return random.choice(
        [
            *({"a": 1}, [], "text", 7, None, {"message_id": "", "text": "x"}),
            *({"text": "x", "k" * 300: 1}, {"ttl": "for ever"}, {"timeout": -1}, {"mode": "later"}),
            *({"text": ["\ud800"]}, "\udfff", [{"deep": [[[[]]]]}], {"text": "x", "priority": 3}),
        ]
    )


def answer(entry: views.InterruptView, random: Random | None = None) -> Json:
    """An answer that fits what is asked: one that leads on, or any that chance draws."""

    def choose(options: Sequence[Json]) -> Json:
        return options[0] if random is None else random.choice(options)

    match entry.kind, entry.response_schema:
        case "static", _:
            return None
        case "error", _:
            return choose([{"action": "skip"}, {"action": "retry"}, {"action": "fail"}])
        case "outcome", _:
            return choose([{"action": "done", "result": 1}, {"action": "retry"}])
        case "approval", _:
            return choose([{"approved": True}, {"approved": False, "reason": "no"}])
        case _, None:
            return choose(["yes", None, 0, ""])
        case _, {"type": "boolean"}:
            return choose([True, False])
        case _:
            return choose([{"approved": True}, {"approved": False}])


def answers(
    random: Random, entry: views.InterruptView, open_: Sequence[views.InterruptView]
) -> dict[str, Any]:
    """An order to respond about one question, mostly such as it should be."""
    right = answer(entry)
    order: dict[str, Any] = {"responses": {entry.id: right}}
    match random.choice([*["right"] * 8, "wrong", "other", "unknown", "bare", "all"]):
        case "wrong":
            order["responses"][entry.id] = random.choice([{"no": 1}, [], 7.5])
        case "other":
            order["responses"][entry.id] = answer(entry, random)
        case "unknown":
            order["responses"][f"{entry.run_id}.0123456789abcdef"] = right
        case "bare":
            order = {"response": right}
        case "all":
            order["responses"] |= {each.id: answer(each) for each in open_}
        case _:
            pass
    if random.random() < 0.15 and entry.digest:
        order["digests"] = {entry.id: random.choice([entry.digest, "sha256:0"])}
    return order

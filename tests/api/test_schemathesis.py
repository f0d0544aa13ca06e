"""No call, however odd, makes the API err, and the OpenAPI document describes every answer.

Schemathesis makes the requests from the document: its examples, random requests that it allows or
forbids, and under the profile `wide` the limits of its schemas. Every answer is checked against the
document. The graph and the run of its examples exist, so that some calls find what they name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis

# Else the first call imports it deep in the stack, where Python 3.11 may fail to compile a module.
import schemathesis.transport.wsgi
from dev_stack import until
from hypothesis import HealthCheck, settings
from own_thread import threaded
from pydantic import BaseModel
from sample_graphs import Decision
from stack import openapi_document

from abeyance import END, START, Graph
from abeyance.api import examples

_RUN = examples.START["run_id"]
_ASKED = {"id": examples.INTERRUPT_ID}
"""The id of the run's question. Each run that takes the run id asks under another one."""
_AS_STARTED: dict[str, Any] = {}
"""The view of the run when it had asked its question. Most calls change nothing of it."""
_LONGEST_WAIT = 1.0
"""In seconds: no test here needs the end of a long poll."""
_IS_WIDE = settings().max_examples > 100
_EXAMPLES = 40 if _IS_WIDE else 4
"""Random examples of each operation. Generating one takes longer than the call."""

_CONFIG = schemathesis.Config.from_dict(
    {
        "checks": {
            # A request of the right form may still be refused: its cursor is of another list, its
            # input of another graph, or the caller lacks a capability that the graph asks for.
            "positive_data_acceptance": {"enabled": False},
        },
        # These are thousands of calls, which each process of a run of all tests would generate before
        # its first test. So only the profile `wide` has them.
        "phases": {"coverage": {"enabled": _IS_WIDE}},
    }
)
schema = schemathesis.openapi.from_dict(openapi_document(), config=_CONFIG)


@schema.hook
def map_path_parameters(
    context: schemathesis.HookContext, path_parameters: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Replace every other random id by one that exists."""
    there_are = {
        "run_id": _RUN,
        "interrupt_id": _ASKED["id"],
        "name": examples.START["graph"],
        "graph": examples.START["graph"],
        "conversation_id": "chat-17",
        "delegation_id": "9f86d081884c7d65",
    }
    return path_parameters and {
        name: there_are.get(name, given) if len(str(given)) % 2 else given
        for name, given in path_parameters.items()
    }


class Refund(BaseModel):
    order_id: str
    amount: float
    risk: str = "unknown"
    decision: Decision | None = None


def refund() -> Graph:
    graph = Graph("refund", state=Refund)

    @graph.node
    async def pay(state: Refund) -> dict[str, Any]:
        return {"risk": "none"}

    graph.interrupt(
        "approve",
        prompt="Refund {amount} for {order_id}?",
        response=Decision,
        answer_to="decision",
        timeout="P2D",
        on_timeout="halt",
    )
    graph.edge(START, "approve")
    graph.edge("approve", "pay")
    graph.edge("pay", END)
    return graph


@pytest.fixture(scope="module")
def base(address: str) -> Iterator[str]:
    """The URL of the API, which has its own thread because the code of these tests is not async."""
    with (
        pytest.MonkeyPatch.context() as patch,
        threaded(address, refund(), default_timeout=_LONGEST_WAIT) as stack,
    ):
        patch.setenv("NO_PROXY", "*")
        yield stack.api.url


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """The connections, which all tests of the module use again."""
    with requests.Session() as session:
        yield session


@pytest.fixture
def url(base: str, session: requests.Session) -> str:
    """The URL of the API, once the run of the examples asks its question."""

    def is_over() -> bool:
        found = session.get(f"{base}/runs/{_RUN}", params={"wait": "PT1S"}, timeout=40)
        return not found.ok or bool(found.json()["ended_at"])

    def asks() -> bool:
        wait = {"wait": "PT1S", "until": "awaiting-input"}
        found = session.get(f"{base}/runs/{_RUN}", params=wait, timeout=40)
        listed = found.json()["interrupts"]
        for entry in listed:
            _ASKED["id"] = entry["id"]
        return bool(listed)

    def view() -> Any:
        return session.get(f"{base}/runs/{_RUN}", timeout=40).json()

    if view() == _AS_STARTED:
        return base
    session.post(f"{base}/runs/{_RUN}/cancel", json={"mode": "now"}, timeout=40)
    until(is_over, "the run of the test before to end")
    order = {**examples.START, "reuse": True}
    started = session.post(f"{base}/runs", json=order, timeout=40)
    assert started.status_code == 201, started.text
    until(asks, "the run of the examples to ask")
    _AS_STARTED.clear()
    _AS_STARTED.update(view())
    return base


@schema.parametrize()
@settings(
    max_examples=_EXAMPLES,
    derandomize=True,
    deadline=None,
    # The second request may meet another run of the examples than the first one did.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_answer_to_any_call_is_as_documented(
    case: schemathesis.Case[Any], url: str, session: requests.Session
) -> None:
    # A call without a body needs this header. Without it the API refuses a call before it notices that
    # the path does not have the method.
    headers = {"X-Abeyance-Request": "1"}
    case.call_and_validate(base_url=url, session=session, headers=headers)

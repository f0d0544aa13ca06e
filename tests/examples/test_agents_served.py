"""Two of the examples on a real server, answered over HTTP by somebody who has only that."""

from collections.abc import AsyncIterator

import pytest_asyncio
from stack import Api, app_for, problem, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from examples.agents.graphs import graphs


@pytest_asyncio.fixture
async def api(temporal: TemporalClient) -> AsyncIterator[Api]:
    """All of the examples, served together."""
    site = Site(temporal, *graphs)
    async with site.worker(), served(app_for(site)) as api:
        yield api


async def test_an_approval_three_levels_deep_is_found_edited_and_answered_over_http(
    api: Api,
) -> None:
    run_id = await api.start("supervisor", {})
    view = await api.until(run_id, "awaiting-input")
    (asked,) = view["interrupts"]
    assert (asked["kind"], asked["name"]) == ("approval", "approve")
    assert asked["address"].endswith("tool:cashier:call_2;agent:cashier;tool:transfer:call_1")
    arguments = {"source": "savings", "target": "checking", "amount": 1000}
    assert asked["reason"] == {"tool": "transfer", "arguments": arguments}

    respond = f"/interrupts/{asked['id']}/respond"
    others = {"X-Abeyance-Principal": "eve", "X-Abeyance-Capabilities": "runs:respond"}
    answer = {"response": {"approved": True, "arguments": {**arguments, "amount": 400}}}
    refused = await api.http.post(respond, json=answer, headers=others)
    problem(refused, 403, "capability_required")
    wrong = {"response": {"approved": True, "arguments": {**arguments, "amount": "much"}}}
    found = problem(await api.http.post(respond, json=wrong), 422, "invalid_answer")
    assert found["errors"][0]["pointer"] == "/arguments/amount"

    first = await api.http.post(respond, json=answer)
    again = await api.http.post(respond, json=answer)
    assert (first.status_code, again.status_code) == (200, 200)
    ended = await api.until(run_id, "completed")
    assert ended["values"]["reply"].endswith("400 were transferred from savings to checking")

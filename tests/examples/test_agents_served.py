"""Two of the examples on a real server, answered over HTTP by somebody who has only that."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from stack import Api, app_for, problem, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from examples.agents.folder import VARIABLE
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


@pytest.mark.parametrize(
    ("answer", "remain"), [("y", ["notes.txt"]), ("n", ["a.log", "notes.txt"])]
)
async def test_a_file_is_deleted_by_the_worker_when_somebody_says_so_over_http(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, remain: list[str]
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for name in ("a.log", "notes.txt"):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (time.time() - 1e6,) * 2)
    run_id = await api.start("deleting_files", {})
    view = await api.until(run_id, "awaiting-input")
    assert [entry["prompt"] for entry in view["interrupts"]] == ["Delete a.log (y/n)?"]
    assert (tmp_path / "a.log").exists()

    answered = await api.http.post(f"/runs/{run_id}/respond", json={"response": answer})
    assert answered.status_code == 200
    ended = await api.until(run_id, "completed")
    assert sorted(each.name for each in tmp_path.iterdir()) == remain
    assert ended["values"]["report"].startswith("Deleted: a.log" if answer == "y" else "Nothing")

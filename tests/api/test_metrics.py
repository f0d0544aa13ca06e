"""The metrics of the API's calls, and who may read them."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from scraped import Scraped
from stack import Api, app_for, new_id, openapi_document, problem, served
from temporal_site import Site

from abeyance import metrics
from abeyance.api import problems
from abeyance.api.routers.health import OPERATIONS, install_metrics
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.token_file import add_token

_CHANGING = {"POST", "PUT", "PATCH", "DELETE"}


async def told(api: Api) -> Scraped:
    response = await api.http.get("/metrics")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scraped(response.text)


async def test_every_operation_is_counted_once_by_what_its_caller_was_answered(site: Site) -> None:
    async with served(app_for(site)) as api:
        run_id, (gate,) = await api.waiting("gated")
        await api.http.post(f"/runs/{run_id}/pause", json={})
        await api.http.post(f"/runs/{run_id}/pause", json={})
        await api.http.post(f"/runs/{run_id}/resume", json={})
        wrong = await api.http.post(f"/interrupts/{gate}/respond", json={"response": 7})
        right = {"response": {"approved": True}}
        for _ in range(2):
            await api.http.post(f"/interrupts/{gate}/respond", json=right)
        await api.until(run_id, "completed")
        late = await api.http.post(f"/runs/{run_id}/interrupt", json={})
        scraped = await told(api)

    def count(operation: str, status: str, code: str = "") -> float:
        labels = {"operation": operation, "status": status, "code": code, "via": "api"}
        return scraped.total("interrupt_operations_total", **labels)

    problem(wrong, 422, "invalid_answer")
    problem(late, 404, "not_running")
    assert count("start", "success") == 1
    assert count("pause", "success") == 2
    assert count("resume", "success") == 1
    assert count("respond", "refused", "invalid_answer") == 1
    assert count("respond", "success") == 2
    assert count("cancel", "refused", "not_running") == 1
    assert scraped.total("interrupt_operations_total") == 8
    assert scraped.total("interrupt_latency_milliseconds_count", operation="respond") == 3
    assert scraped.total("interrupt_latency_milliseconds_count") == 8
    assert 0 < scraped.total("interrupt_latency_milliseconds_sum", operation="start") < 40_000
    exposed = (metrics.OPERATIONS.exposed, f"{metrics.LATENCY.exposed}_bucket")
    assert set(exposed) <= scraped.names
    assert scraped.labels(exposed[0]) == {*metrics.OPERATIONS.attributes}
    assert scraped.labels(exposed[1]) == {*metrics.LATENCY.attributes, "le"}


async def test_reads_refused_origins_and_unknown_paths_are_not_operations(
    site: Site,
) -> None:
    async with served(app_for(site)) as api:
        await api.http.get("/graphs")
        evil = {"Origin": "https://evil.example"}
        problem(await api.http.post("/runs", json={}, headers=evil), 403, "foreign_origin")
        problem(await api.http.get("/runs/nobody/pause"), 405, "method_not_allowed")
        scraped = await told(api)

    assert not scraped.names


async def measured(app: FastAPI, path: str) -> Scraped:
    """Make one call, and return the application's metrics."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        await http.post(path)
    return Scraped(app.state.instruments.exposed().decode())


FULL = Refusal(Code.QUEUE_FULL, "The queue is full.")


@pytest.mark.parametrize(
    ("query", "error", "status", "code"),
    [
        ("", FULL, "refused", "queue_full"),
        # The caller waited for room, and the time ran out.
        ("?timeout=3", FULL, "timeout", "queue_full"),
        ("", Unavailable("Temporal does not answer"), "error", "unavailable"),
        ("", ZeroDivisionError(), "error", "internal_error"),
    ],
)
async def test_the_status_of_a_call_is_counted_by_its_error(
    query: str, error: Exception, status: str, code: str
) -> None:
    app = FastAPI()
    install_metrics(app)
    problems.install(app)

    @app.post("/messages")
    async def send_message() -> None:
        raise error

    scraped = await measured(app, f"/messages{query}")
    labels = {"operation": "message", "status": status, "code": code}
    assert scraped.total("interrupt_operations_total", **labels) == 1


async def test_two_applications_in_one_process_count_apart(site: Site, api: Api) -> None:
    async with served(app_for(site)) as other:
        await api.http.post(f"/runs/{new_id()}/resume", json={})

        assert not (await told(other)).names
        assert (await told(api)).total("interrupt_operations_total", operation="resume") >= 1


async def test_an_operator_may_open_them_to_everybody_who_reaches_the_port(
    site: Site, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.json"
    add_token(file, "ada", ["admin"])
    async with served(app_for(site, tokens_file=file, open_metrics=True)) as api:
        assert (await api.http.get("/metrics")).status_code == 200
        problem(await api.http.get("/graphs"), 401, "unauthenticated")


async def test_metrics_without_authentication_require_only_our_host_name(api: Api) -> None:
    nobody = {"X-Abeyance-Capabilities": ""}
    rebound = {"Host": "abeyance.evil.example"}

    assert (await api.http.get("/metrics", headers=nobody)).status_code == 200
    problem(await api.http.get("/metrics", headers=rebound), 403, "foreign_origin")


async def test_turned_off_there_are_none(site: Site) -> None:
    async with served(app_for(site, enable_metrics=False)) as api:
        problem(await api.http.get("/metrics"), 404, "unknown_path")


def test_every_call_that_changes_something_is_an_operation() -> None:
    # FastAPI makes the summary from the name of the route's function.
    names = [
        call["summary"].lower().replace(" ", "_")
        for path, calls in openapi_document()["paths"].items()
        for method, call in calls.items()
        # A session belongs to a browser and concerns no run.
        if method.upper() in _CHANGING and path not in {"/signin", "/signout"}
    ]

    assert len(names) >= 9
    assert set(names) == set(OPERATIONS)


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("POST", "/conversations/team/7/pause", "pause"),
        ("GET", "/runs/a/messages", None),
        ("POST", "/batch/pause", "batch"),
        ("POST", "/runs/a/b/pause", None),
    ],
)
async def test_an_operation_is_counted_by_its_route(
    api: Api, method: str, path: str, operation: str | None
) -> None:
    def count(scraped: Scraped) -> float:
        return scraped.total("interrupt_operations_total", operation=operation or "")

    def total(scraped: Scraped) -> float:
        return scraped.total("interrupt_operations_total")

    before = await told(api)
    await api.http.request(method, path, json={"unknown": 1})
    after = await told(api)

    assert total(after) - total(before) == (operation is not None)
    assert count(after) - count(before) == (operation is not None)

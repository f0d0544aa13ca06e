"""Every error of the API is a problem of RFC 9457."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from stack import Api, problem, served
from temporal_site import Site, eventually

from abeyance import Refusal, SettingsError
from abeyance.api.app import create_app
from abeyance.api.problems import PROBLEMS
from abeyance.errors import Code, RecordsUnavailable
from abeyance.settings import Settings


def test_every_code_has_its_status_and_its_title() -> None:
    assert set(PROBLEMS) == set(Code)
    assert len({title for _, title in PROBLEMS.values()}) == len(Code)


@pytest.mark.parametrize("path", ["/inboxes", "/nope", "/runs/x/y/z", "/runs/", "/docs"])
async def test_a_path_that_there_is_not_is_a_problem(api: Api, path: str) -> None:
    found = problem(await api.http.get(path), 404, "unknown_path")

    assert path in found["detail"]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (
            "/interrupts/refund-4711.0123456789abcdef/respond",
            [],
            "should be a valid object (got [])",
        ),
        (
            "/interrupts/refund-4711.0123456789abcdef/reassign",
            {"to": "bob"},
            "should be a valid list (got 'bob')",
        ),
        ("/runs/refund-4711/respond", {"responses": {}}, "object should have at least 1 item"),
    ],
)
async def test_a_fault_calls_json_by_its_own_names(
    api: Api, path: str, body: Any, words: str
) -> None:
    detail = problem(await api.http.post(path, json=body), 422, "invalid_body")["detail"]

    assert words in detail
    assert not any(word in detail for word in ("dictionary", "tuple", "validation"))


async def test_a_request_with_many_faults_lists_the_first(api: Api) -> None:
    body = {"graph": "g", **{f"field{number}": 1 for number in range(5_000)}}
    found = problem(await api.http.post("/runs", json=body), 422, "invalid_body")

    assert [each["pointer"] for each in found["errors"]] == [f"/field{n}" for n in range(20)]


async def test_a_refused_method_lists_the_allowed_methods(api: Api) -> None:
    response = await api.http.delete("/runs", headers={"X-Abeyance-Request": "1"})

    assert "GET, HEAD, POST" in problem(response, 405, "method_not_allowed")["detail"]
    assert response.headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    "path",
    ["/", "/inbox", "/inbox/runs/r", "/links/x", "/signin", "/readyz", "/metrics", "/runs/none"],
)
async def test_a_head_is_answered_as_a_get_without_its_body(api: Api, path: str) -> None:
    got, asked = await api.http.get(path), await api.http.head(path)

    assert (asked.status_code, asked.content) == (got.status_code, b"")
    assert asked.headers["content-length"] == got.headers["content-length"]


async def test_the_head_of_a_stream_does_not_wait_for_its_end(api: Api) -> None:
    asked = await api.http.head("/events", headers={"Accept": "text/event-stream"})

    assert asked.headers["content-type"].startswith("text/event-stream")
    await eventually(lambda: not api.under_way)


async def test_an_unexpected_error_is_reported_without_its_details(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server of another test may have changed this logger.
    monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
    app = create_app(Settings(), {}, site.client)

    @app.get("/broken", include_in_schema=False)
    async def broken() -> None:
        raise RuntimeError("a secret of ours")

    with caplog.at_level(logging.ERROR):
        async with served(app) as api:
            response = await api.http.get("/broken")

    problem(response, 500, "internal_error")
    assert "secret" not in response.text
    assert "a secret of ours" in caplog.text


RAISED: dict[str, Exception] = {
    "refusing": Refusal(Code.WITHDRAWN, "It was.", status="cancelled", title="x", type="y", more=1),
    "unset": SettingsError("run `abeyance setup` once"),
    "away": RecordsUnavailable("the records are not available (disk full)", retry_after=7),
}


async def test_an_error_becomes_a_problem_with_its_own_details(
    site: Site,
) -> None:
    app = create_app(Settings(), {}, site.client)

    @app.get("/raised/{name}", include_in_schema=False)
    async def raised(name: str) -> None:
        raise RAISED[name]

    async with served(app) as api:
        refusing, unset, away = [await api.http.get(f"/raised/{name}") for name in RAISED]

    found = problem(refusing, 409, "withdrawn")
    assert (found["interrupt_status"], found["more"]) == ("cancelled", 1)
    assert found["title"] == PROBLEMS[Code.WITHDRAWN][1]
    assert "abeyance setup" in problem(unset, 503, "unavailable")["detail"]
    assert int(unset.headers["retry-after"]) > 0
    found = problem(away, 503, "records_unavailable")
    assert found["detail"] == "the records are not available (disk full)"
    assert away.headers["retry-after"] == "7"


async def test_a_parameter_that_takes_one_value_is_not_repeated(api: Api) -> None:
    found = problem(
        await api.http.get("/interrupts?priority=high&priority=low&limit=1"), 422, "invalid_body"
    )
    (fault,) = found["errors"]
    assert (fault["pointer"], fault["in"]) == ("/priority", "query")
    assert fault["message"] == "is there 2 times, and takes one value"
    for path in (
        "/runs?status=completed&status=failed&label=a=b&label=c=d",
        "/interrupts?capability=a&capability=b",
        "/events?type=run.failed&type=user.*&capability=a&capability=b",
    ):
        assert (await api.http.get(path)).status_code == 200, path
    missing = await api.http.get("/runs/none?until=paused&until=completed&wait=1s")
    problem(missing, 404, "unknown_run")


async def test_every_parameter_of_a_call_is_described(api: Api) -> None:
    calls = [
        (method, re.sub(r"\{[^}]+\}", "x", path))
        for path, methods in api.app.openapi()["paths"].items()
        for method in methods
        if path not in ("/healthz", "/readyz", "/metrics") and (method, path) != ("get", "/signin")
    ]
    for method, path in calls:
        body: dict[str, str] | None = None if method == "get" else {}
        answer = await api.http.request(method, f"{path}?surplus=1", json=body)
        found = problem(answer, 422, "invalid_body")
        assert [(e["pointer"], e["in"]) for e in found["errors"]] == [("/surplus", "query")], path
    assert len(calls) > 30

"""A call with a wrong body or query is refused with the place of the fault, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from stack import Api, problem

HIGH = {"text": "x", "priority": "urgent"}
MEDIA = {"type": "media", "media_type": "a/b"}
PNG = {**MEDIA, "media_type": "png", "data": ""}
GATED = {"graph": "gated"}

# fmt: off
BODIES: list[tuple[str, Any, str]] = [
    ("POST /runs/{run}/resume", {"mode": "now"}, "/mode"),
    ("POST /runs/{run}/interrupt", {"actor": "root"}, "/actor"),
    ("POST /runs/{run}/cancel", [], ""),
    ("POST /runs/{run}/steer", {"text": 7}, "/text"),
    ("POST /runs/{run}/steer", {"parts": [{"type": "song"}]}, "/parts/0"),
    ("POST /runs/{run}/steer", {"parts": [PNG]}, "/parts/0/media_type"),
    ("POST /runs/{run}/steer", {"parts": [MEDIA]}, "/parts/0"),
    ("POST /runs/{run}/steer", [], ""),
    ("POST /runs/{run}/messages?timeout=soon", {"text": "x"}, "/timeout"),
    ("POST /runs/{run}/messages?timeout=inf", {"text": "x"}, "/timeout"),
    ("POST /runs/{run}/respond", {"note": "x"}, ""),
    ("POST /runs/{run}/respond", {"responses": {"x": 1}, "response": 1}, ""),
    ("POST /runs/{run}/respond", [], ""),
    ("PATCH /runs/{run}/values", {"patch": {"amount": 1}, "version": "2"}, "/version"),
    ("PATCH /runs/{run}/values", {"patch": {}, "version": 2}, "/patch"),
    ("PATCH /runs/{run}/values", {"patch": {"a": 1}, "version": 2, "graph": "x"}, "/graph"),
    ("PATCH /interrupts/{gate}", {"deadline": None, "timeout": None}, ""),
    ("PATCH /interrupts/{gate}", {"deadline": "2020-01-01T00:00:00Z"}, "/deadline"),
    ("PATCH /interrupts/{gate}", {"deadline": "2999-01-01T00:00:00Z"}, "/deadline"),
    ("PATCH /interrupts/{gate}", {"deadline": "2099-01-01T00:00:00"}, "/deadline"),
    ("PATCH /interrupts/{gate}", {"deadline": 1_999_999_999}, "/deadline"),
    ("PATCH /interrupts/{gate}", {"deadline": "1999999999"}, "/deadline"),
    ("PATCH /interrupts/{gate}", {"timeout": "0bd"}, "/timeout"),
    ("PATCH /interrupts/{gate}", {"timeout": "1h", "on_timeout": "resume"}, "/on_timeout"),
    ("POST /runs", {"graph": None}, "/graph"),
    ("POST /runs", {**GATED, "colour": 1}, "/colour"),
    ("POST /runs", {**GATED, "interrupt_before": [7]}, "/interrupt_before/0"),
    ("POST /runs", {**GATED, "reuse": "yes"}, "/reuse"),
    ("POST /runs", {**GATED, "labels": {"a=b": "c"}}, "/labels/a=b"),
    ("POST /runs", {**GATED, "labels": {"a": 1}}, "/labels/a"),
    ("POST /runs", {**GATED, "conversation_id": ".."}, "/conversation_id"),
    ("POST /runs", {**GATED, "on_behalf_of": "group:finance"}, "/on_behalf_of"),
    ("POST /runs", {**GATED, "limits": {"max_visits": 1001}}, "/limits/max_visits"),
    ("POST /runs", {**GATED, "limits": {"max_visits": "5"}}, "/limits/max_visits"),
    ("POST /runs", {**GATED, "limits": {"patience": 1}}, "/limits/patience"),
    ("POST /runs", {**GATED, "limits": {"grace": "soon"}}, "/limits/grace"),
    ("POST /runs", {**GATED, "limits": {"allowed_media_hosts": ["x"]}}, "/limits/allowed_media_hosts"),
    ("POST /interrupts/{gate}/claim", {"for": "P2D"}, "/for"),
    ("POST /interrupts/{gate}/claim", {"on_behalf_of": " a"}, "/on_behalf_of"),
    ("POST /interrupts/{gate}/reassign", {"to": []}, "/to"),
    ("POST /interrupts/{gate}/reassign", {"to": ["eve a"]}, "/to/0"),
    ("POST /interrupts/{gate}/reassign", {"to": ["@starter"]}, "/to/0"),
    ("POST /interrupts/{gate}/reassign", {"to": ["eve", "{lead}"]}, "/to/1"),
    ("POST /interrupts/{gate}/release", {"for": "P1D"}, "/for"),
    ("POST /runs/{run}/migrate", {"map": {"pay": ""}}, "/map"),
    ("POST /runs", {**GATED, "input": {}, "allow_concurrent": 1}, "/allow_concurrent"),
    ("POST /conversations/c/interrupt", {"mode": "hard"}, "/mode"),
    ("POST /conversations/c/pause", {"timeout": "-1s"}, "/timeout"),
    ("POST /conversations/c/resume", {"why": "so"}, "/why"),
    ("POST /conversations/c/steer", HIGH, "/priority"),
    (f"POST /conversations/{'c' * 257}/resume", {}, "/conversation_id"),
    ("POST /conversations/two%0Alines/interrupt", {}, "/conversation_id"),
    ("POST /batch/pause", {}, ""),
    ("POST /batch/pause", {"run_ids": ["a"], "filter": GATED}, ""),
    ("POST /batch/pause", {"run_ids": []}, "/run_ids"),
    ("POST /batch/pause", {"run_ids": ["a"] * 1_001}, "/run_ids"),
    ("POST /batch/pause", {"run_ids": ["a"], "limit": 3}, ""),
    ("POST /batch/resume", {"filter": {}}, "/filter"),
    ("POST /batch/resume", {"filter": {"status": ["asleep"]}}, "/filter/status"),
    ("POST /batch/resume", {"filter": {"label": ["team"]}}, "/filter/label/0"),
    ("POST /batch/resume", {"filter": {"colour": "red"}}, "/filter/colour"),
    ("POST /batch/resume", {"filter": GATED, "limit": 1_001}, "/limit"),
    ("POST /batch/resume", {"filter": GATED, "cursor": "elsewhere"}, "/cursor"),
    ("POST /batch/cancel", {"run_ids": ["a"], "body": {"mode": "hard"}}, "/body/mode"),
    ("POST /batch/steer", {"run_ids": ["a"]}, "/body"),
    ("POST /batch/steer", {"run_ids": ["a"], "body": {"text": 5}}, "/body/text"),
    ("POST /batch/respond", {"run_ids": ["a"], "body": {"note": "no answer"}}, "/body"),
    ("POST /admin/evict", {"inactive_for": 0}, "/inactive_for"),
    ("POST /admin/evict", {"inactive_for": "a while"}, "/inactive_for"),
    ("POST /admin/evict", {"keep": 1.5}, "/keep"),
    ("POST /admin/evict", {"limit": 0, "keep": 1}, "/limit"),
    ("POST /admin/evict", {"older_than": 3}, "/older_than"),
]
# fmt: on
QUERIES: list[tuple[str, str]] = [
    ("/runs/{run}?wait=soon", "/wait"),
    ("/runs/{run}?wait=-PT1S", "/wait"),
    ("/runs/{run}?wait=", "/wait"),
    ("/runs/{run}?until=done", "/until"),
    ("/runs/{run}?wait=1s&until=completed,", "/until"),
    *(
        (f"{of}/events?limit={limit}", "/limit")
        for of in ("", "/runs/{run}")
        for limit in (0, 1001)
    ),
    ("/runs/{run}/events?type=user", "/type"),
    ("/runs/{run}/events?limit=x", "/limit"),
    ("/events?status=open", "/status"),
    ("/events?type=", "/type/0"),
    ("/runs?color=red", "/color"),
    ("/runs?status=paused,sleeping", "/status"),
    ("/runs?label=te%20am=x", "/label/0"),
    ("/runs?graph=", "/graph"),
    ("/runs?conversation_id=a%00b", "/conversation_id"),
    ("/runs?page_size=1001", "/page_size"),
    ("/runs?limit=all", "/limit"),
    ("/runs?cursor=", "/cursor"),
    ("/runs?cursor=%C3%BC.1", "/cursor"),
    ("/approvals?outcome=won", "/outcome/0"),
    ("/approvals?outcome=approved,lost", "/outcome/1"),
    ("/approvals?fields=reason.amount,reason..x", "/fields/1"),
    ("/approvals?sum=amount", "/sum/0"),
    ("/approvals?sum=", "/sum/0"),
    ("/approvals?from=yesterday", "/from"),
    ("/approvals?to=", "/to"),
    ("/approvals?to=2026-01-01", "/to"),
    ("/approvals?from=2026-02-01T00:00Z&to=2026-01-01T00:00Z", "/from"),
    ("/approvals?from=2150-01-01T00:00Z", "/from"),
    ("/approvals?format=xml", "/format"),
    ("/approvals?cursor=x", "/cursor"),
    ("/approvals?limit=0", "/limit"),
    ("/approvals?page_size=1001", "/page_size"),
    ("/approvals?person_=ada", "/person_"),
    ("/runs/{run}/transcript?limit=1001", "/limit"),
    ("/runs/{run}/transcript?page=1", "/page"),
    ("/runs/{run}/transcript?cursor=%C3%A9.0", "/cursor"),
    ("/interrupts?status=answered", "/status"),
    ("/interrupts?before=1772442000", "/before"),
    ("/interrupts?before=2026-03-02T09:00:00", "/before"),
    ("/interrupts?capability=", "/capability/0"),
    ("/interrupts?limit=0", "/limit"),
    ("/interrupts?cursor=nonsense", "/cursor"),
]


@pytest.mark.parametrize(("call", "body", "pointer"), BODIES)
async def test_a_body_of_another_form_is_refused_and_changes_nothing(
    api: Api, standing: tuple[str, str], call: str, body: Any, pointer: str
) -> None:
    run_id, gate = standing
    before = (await api.http.get(f"/runs/{run_id}")).json()
    method, path = call.split()
    response = await api.http.request(method, path.format(run=run_id, gate=gate), json=body)

    found = problem(response, 422, "invalid_body")
    assert [entry["pointer"] for entry in found["errors"]] == [pointer]
    assert (await api.http.get(f"/runs/{run_id}")).json() == before


@pytest.mark.parametrize(("path", "pointer"), QUERIES)
async def test_a_query_of_another_form_is_refused(
    api: Api, standing: tuple[str, str], path: str, pointer: str
) -> None:
    response = await api.http.get(path.format(run=standing[0]))

    (fault,) = problem(response, 422, "invalid_body")["errors"]
    assert (fault["pointer"], fault["in"]) == (pointer, "query")

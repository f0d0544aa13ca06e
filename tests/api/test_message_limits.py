"""What a start says of the messages of its run."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from stack import Api, app_for, new_id, problem, served
from temporal_site import Site

JSON = {"X-Abeyance-Request": "1"}


async def test_a_start_may_narrow_what_messages_may_be(site: Site) -> None:
    settings = {"allowed_actions": "sing,dance", "allowed_media_hosts": "Media.example,b.example"}
    async with served(app_for(site, **settings)) as api:
        limits = {
            "max_message_length": 5,
            "max_metadata_size": 60,
            "allowed_actions": ["sing"],
            "allowed_media_hosts": ["media.example"],
        }
        run_id, _ = await api.waiting("gated", limits=limits)

        async def told(**body: Any) -> tuple[int, str | None]:
            response = await api.http.post(f"/runs/{run_id}/messages", json=body)
            return response.status_code, response.json().get("code")

        def media(url: str) -> list[dict[str, str]]:
            return [{"type": "media", "media_type": "image/png", "url": url}]

        answers = [
            await told(text="12345"),
            await told(text="123456"),
            await told(text="x", metadata={"a": "y" * 60}),
            await told(text="x", action="sing"),
            await told(text="x", action="dance"),
            await told(parts=media("https://b.example/")),
        ]
        await api.http.delete(f"/runs/{run_id}/messages", headers=JSON)
        wide, _ = await api.waiting("gated")
        run_id = wide
        urls = {
            "https://media.example/a.png?x=1": 201,
            "https://MEDIA.example:443/a": 201,
            "http://media.example/a": 422,
            "https://media.example:8443/a": 422,
            "https://media.example@evil.example/": 422,
            "https://evil.example/media.example": 422,
            "https://media.example\\@evil.example/": 422,
            "https://media.example /": 422,
            "//media.example/a": 422,
            "ftp://media.example/a": 422,
        }
        found = {url: (await told(parts=media(url)))[0] for url in urls}
        data = {"type": "media", "media_type": "image/png", "data": base64.b64encode(b"x").decode()}
        with_data = await told(parts=[data, {"type": "text", "text": "see"}])

    assert answers == [
        (201, None),
        (422, "invalid_message"),
        (422, "invalid_message"),
        (201, None),
        (422, "action_not_allowed"),
        (422, "invalid_message"),
    ]
    assert found == urls
    assert with_data == (201, None)


@pytest.mark.parametrize(
    ("limits", "pointer"),
    [
        ({"max_message_length": 10_001}, "/limits/max_message_length"),
        ({"max_message_length": 0}, "/limits/max_message_length"),
        ({"max_metadata_size": -5}, "/limits/max_metadata_size"),
        ({"max_queue_size": 10**9}, "/limits/max_queue_size"),
        ({"allowed_actions": ["dance"]}, "/limits/allowed_actions"),
        ({"allowed_actions": []}, "/limits/allowed_actions"),
        ({"allowed_media_hosts": ["evil.example"]}, "/limits/allowed_media_hosts"),
    ],
)
async def test_a_start_cannot_widen_what_messages_may_be(
    site: Site, limits: dict[str, Any], pointer: str
) -> None:
    async with served(app_for(site, allowed_actions=("sing",))) as api:
        run_id = new_id()
        response = await api.http.post(
            "/runs", json={"graph": "gated", "input": {}, "run_id": run_id, "limits": limits}
        )
        found = problem(response, 422, "invalid_body")
        problem(await api.http.get(f"/runs/{run_id}"), 404, "unknown_run")

    assert pointer in [entry["pointer"] for entry in found["errors"]]


async def test_any_action_may_be_narrowed_where_the_service_allows_all(api: Api) -> None:
    run_id, _ = await api.waiting("gated", limits={"allowed_actions": ["sing"]})
    path = f"/runs/{run_id}/messages"
    fine = await api.http.post(path, json={"text": "x", "action": "sing"})
    refused = await api.http.post(path, json={"text": "x", "action": "dance"})

    assert fine.status_code == 201
    assert "'dance'" in problem(refused, 422, "action_not_allowed")["detail"]

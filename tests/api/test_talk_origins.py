"""Pages that may talk to a graph: our own, and those of named origins if they send a token."""

from __future__ import annotations

from pathlib import Path

from stack import app_for, problem, served
from temporal_site import Site

from abeyance.token_file import add_token

CHAT = "https://chat.example"
PAGE = {"Origin": CHAT, "Sec-Fetch-Site": "cross-site"}
ALLOWED = "access-control-allow-origin"
BODY = {"threadId": "t", "runId": "1", "messages": []}


async def test_a_page_of_a_named_origin_talks_with_a_token_and_not_because_somebody_signed_in(
    site: Site, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.json"
    token = add_token(file, "ada", ["*"])
    async with served(app_for(site, tokens_file=file, allowed_origins=(CHAT,))) as api:
        asked = await api.http.options("/agui/gated", headers=PAGE)
        bearer = {**PAGE, "Authorization": f"Bearer {token}"}
        answer = await api.http.post("/agui/gated", json=BODY, headers=bearer)
        signed_in = await api.http.post("/signin", json={"token": token})
        session = {**PAGE, "Cookie": signed_in.headers["set-cookie"].partition(";")[0]}
        without = await api.http.post("/agui/gated", json=BODY, headers=session)

    assert (asked.status_code, asked.headers[ALLOWED]) == (204, CHAT)
    assert "authorization" in asked.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers[ALLOWED] == CHAT
    problem(answer, 404, "unknown_graph")
    problem(without, 401, "unauthenticated")


async def test_other_origins_are_refused_without_authentication(site: Site) -> None:
    async with served(app_for(site, allowed_origins=(CHAT,))) as api:
        refused = await api.http.post("/agui/gated", json=BODY, headers=PAGE)
        evil = {"Origin": "https://evil.example"}
        other = await api.http.post("/agui/gated", json=BODY, headers=evil)

    assert "without tokens" in problem(refused, 403, "foreign_origin")["detail"]
    assert "only pages of this service" in problem(other, 403, "foreign_origin")["detail"]

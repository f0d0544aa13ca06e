"""Sessions: a user signs in with a token or at a provider, acts under that identity, and signs out."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from issuing import AUDIENCE, GONE, ISSUER, new_key, published, publishing, signed
from oidc_provider import CLIENT, SECRET, Provider, providing
from stack import PLAIN, Api, app_for, problem, served
from starlette.requests import Request
from starlette.responses import Response
from temporal_site import Site, eventually

from abeyance import SettingsError
from abeyance.api.app import create_app
from abeyance.api.sessions import Session
from abeyance.api.signin import own_path
from abeyance.settings import Settings
from abeyance.token_file import add_token, hash_of_token, revoke_tokens

KEYS = f"k:{base64.b64encode(secrets.token_bytes(32)).decode()}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@pytest.fixture
def token(file: Path) -> str:
    may = ["runs:read", "runs:start"]
    return add_token(file, "ada", may, groups=["finance"], reads={"team": ["finance"]})


@pytest.fixture
def provider() -> Iterator[Provider]:
    with providing() as provider:
        yield provider


def at(provider: Provider, **more: Any) -> dict[str, Any]:
    about = {"oidc_issuer": provider.url, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
    return {**about, "signin_keys": KEYS, **more}


@asynccontextmanager
async def browser(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a browser on a page of the service. It keeps cookies and follows no redirects."""
    headers = {"Origin": api.url, "Sec-Fetch-Site": "same-origin"}
    async with httpx.AsyncClient(
        base_url=api.url, headers=headers, trust_env=False, verify=PLAIN
    ) as http:
        yield http


async def sign_in(http: httpx.AsyncClient, token: str) -> httpx.Response:
    return await http.post("/signin", json={"token": token})


def cookie_of(response: httpx.Response) -> dict[str, str]:
    """Return the header by which a browser sends back the first cookie of a response."""
    return {"Cookie": response.headers.get_list("set-cookie")[0].partition(";")[0]}


async def go_round(
    http: httpx.AsyncClient, next_path: str = "/inbox"
) -> tuple[httpx.Response, str]:
    """Sign in at the provider; return the last response, and the address to which it redirected."""
    left = await http.get("/signin/oidc", params={"next": next_path})
    assert left.status_code == 303, left.text
    async with httpx.AsyncClient(trust_env=False, verify=PLAIN) as elsewhere:
        back = (await elsewhere.get(left.headers["location"])).headers["location"]
    # The browser comes from another site.
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    return await http.get(back, headers=headers), back


async def test_a_sign_in_with_a_token_lasts_until_the_sign_out(
    site: Site, file: Path, token: str
) -> None:
    async with served(app_for(site, tokens_file=file)) as api, browser(api) as http:
        problem(await http.get("/me"), 401, "unauthenticated")
        signed_in = await sign_in(http, f" {token}\n")
        me = (await http.get("/me")).json()
        started = await http.post("/runs", json={"graph": "gated", "input": {}})
        ended = await http.post("/signout", json={})
        after = await http.get("/me")
        copied = await http.get("/me", headers=cookie_of(signed_in))

    (cookie,) = signed_in.headers.get_list("set-cookie")
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= attributes
    assert "secure" not in attributes
    assert token not in cookie
    assert me == signed_in.json()
    about = {"subject": "ada", "groups": ["finance"], "reads": {"team": ["finance"]}}
    assert me.items() >= {**about, "authenticated_by": "session"}.items()
    assert started.json()["started_by"] == "ada"
    assert started.json()["labels"] == {"team": "finance"}
    assert ended.json() == {"signed_out": True}
    for refused in (after, copied):
        problem(refused, 401, "unauthenticated")


async def test_open_streams_of_a_session_end_at_the_sign_out(
    site: Site, file: Path, token: str
) -> None:
    app = app_for(site, tokens_file=file)
    tokens = app.state.backend.tokens
    async with served(app) as api, browser(api) as http:
        cookie = cookie_of(await sign_in(http, token))["Cookie"].encode()
        # A stream of events holds such credentials, and checks them again and again.
        request = Request({"type": "http", "headers": [(b"cookie", cookie)]})
        credentials = await tokens.authenticate(request)
        before = tokens.is_revoked(credentials)
        await http.post("/signout", json={})

    assert (before, tokens.is_revoked(credentials)) == (False, True)


async def test_a_wrong_token_begins_no_session(site: Site, file: Path, token: str) -> None:
    async with served(app_for(site, tokens_file=file)) as api, browser(api) as http:
        for wrong in ("nobodys", f"{token}x", "a.b.c", "é"):
            refused = await sign_in(http, wrong)
            problem(refused, 401, "unauthenticated")
            assert "set-cookie" not in refused.headers
        problem(await sign_in(http, ""), 422, "invalid_body")
        problem(await sign_in(http, "x" * 40_000), 413, "payload_too_large")


async def test_an_api_without_authentication_has_no_sign_in(api: Api) -> None:
    async with browser(api) as http:
        page = await http.get("/signin")
        (fault,) = problem(await sign_in(http, "x"), 422, "invalid_body")["errors"]

    assert fault["pointer"] == "/token"
    assert "requires no authentication" in page.text
    assert 'id="with-token" hidden' in page.text


async def test_a_session_ends_when_its_token_is_revoked(site: Site, file: Path, token: str) -> None:
    add_token(file, "bob", ["runs:read"])
    async with served(app_for(site, tokens_file=file)) as api, browser(api) as http:
        await sign_in(http, token)
        before = await http.get("/graphs")
        revoke_tokens(file, "ada")
        refused = await http.get("/graphs")

    assert before.status_code == 200
    assert "revoked" in problem(refused, 401, "unauthenticated")["detail"]


async def test_a_session_ends_when_its_time_is_over(site: Site, file: Path, token: str) -> None:
    app = app_for(site, tokens_file=file)
    began = Response()
    session = Session(id="s", until=time.time() + 2, sha256=hash_of_token(token))
    app.state.backend.sessions.begin(began, session, is_https=False)
    cookie = {"Cookie": began.headers["set-cookie"].partition(";")[0]}
    async with served(app) as api, browser(api) as http:
        signed_in = await http.get("/me", headers=cookie)

        async def is_over() -> bool:
            return (await http.get("/me", headers=cookie)).status_code == 401

        await eventually(is_over)
    assert signed_in.json()["authenticated_by"] == "session"


async def test_a_session_lasts_no_longer_than_the_token_that_began_it(site: Site) -> None:
    key = new_key()
    with publishing() as publisher:
        publisher.keys = [published(key, kid="k")]
        about = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks": publisher.url}
        async with served(app_for(site, **about)) as api, browser(api) as http:
            issued = signed(key, "k", groups=["eu"])["Authorization"].split()[1]
            signed_in = await sign_in(http, issued)
            me = (await http.get("/me")).json()
            header = await http.get("/me", headers={"Authorization": f"Bearer {issued}"})

    assert "max-age=3" in signed_in.headers["set-cookie"].lower()
    assert (me["groups"], me["authenticated_by"]) == (["eu"], "session")
    assert header.json()["authenticated_by"] == "token"
    assert header.json()["expires_at"] == me["expires_at"]


async def test_processes_with_the_same_keys_know_the_same_sessions_and_others_none(
    site: Site, file: Path, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = KEYS, f"n:{base64.b64encode(secrets.token_bytes(32)).decode()}"
    codes: dict[str | None, int] = {}
    async with (
        served(app_for(site, tokens_file=file, signin_keys=old)) as api,
        browser(api) as http,
    ):
        cookie = cookie_of(await sign_in(http, token))
    for keys in (old, f"{new},{old}", new, None):
        async with served(app_for(site, tokens_file=file, signin_keys=keys)) as api:
            codes[keys] = (await api.http.get("/me", headers=cookie)).status_code
            warned = "ABEYANCE_SIGNIN_KEYS" in caplog.text
            await sign_in(api.http, token)
            assert ("ABEYANCE_SIGNIN_KEYS" in caplog.text) is (keys is None)
            assert not warned

    assert [*codes.values()] == [200, 200, 401, 401]


@pytest.mark.parametrize("change", [lambda text: text[:-8] + "AAAAAAAA", lambda _: "é", str.lower])
async def test_a_changed_cookie_is_not_a_session(
    site: Site, file: Path, token: str, change: Any
) -> None:
    async with served(app_for(site, tokens_file=file)) as api, browser(api) as http:
        cookie = (await sign_in(http, token)).cookies["abeyance"]
        headers = {b"Cookie": f"abeyance={change(cookie)}".encode()}
        http.cookies.clear()

        problem(await http.get("/me", headers=headers), 401, "unauthenticated")


async def test_a_page_of_another_site_can_do_nothing_with_the_session(
    site: Site, file: Path, token: str
) -> None:
    body = json.dumps({"graph": "gated", "input": {}})
    foreign, other_type = (403, "foreign_origin"), (415, "unsupported_media_type")
    attempts = [
        ({"Origin": "https://evil.example"}, foreign),
        ({"Origin": "null"}, foreign),
        ({"Sec-Fetch-Site": "cross-site"}, foreign),
        ({"Content-Type": "text/plain"}, other_type),
        ({"Content-Type": "application/x-www-form-urlencoded"}, other_type),
    ]
    async with served(app_for(site, tokens_file=file)) as api, browser(api) as http:
        await sign_in(http, token)
        for path in ("/runs", "/signin", "/signout"):
            for headers, (status, code) in attempts:
                sent = {"Content-Type": "application/json", **headers}
                problem(await http.post(path, content=body, headers=sent), status, code)
        assert (await http.get("/me")).json()["subject"] == "ada"


async def test_a_token_of_the_request_goes_before_the_session_and_headers_name_nobody(
    site: Site, file: Path, token: str
) -> None:
    bob = add_token(file, "bob", ["runs:read"])
    async with served(app_for(site, tokens_file=file)) as api, browser(api) as http:
        await sign_in(http, token)
        as_bob = await http.get("/me", headers={"Authorization": f"Bearer {bob}"})
        nobody = await http.get("/me", headers={"Authorization": "Bearer x"})
        named = await http.get("/me", headers={"X-Abeyance-Groups": "legal"})

    assert as_bob.json()["subject"] == "bob"
    for refused in (nobody, named):
        problem(refused, 401, "unauthenticated")


async def test_behind_a_proxy_with_https_the_cookie_is_for_https_and_this_host_alone(
    site: Site, file: Path, token: str
) -> None:
    app = app_for(site, tokens_file=file, public_url="https://inbox.example/")
    there = {"Host": "inbox.example", "Origin": "https://inbox.example"}
    async with served(app) as api:
        signed_in = await api.http.post("/signin", json={"token": token}, headers=there)
        cookie = signed_in.headers["set-cookie"]
        sent = {**there, **cookie_of(signed_in)}
        me = await api.http.get("/me", headers=sent)
        ended = await api.http.post("/signout", json={}, headers=sent)

    assert cookie.startswith("__Host-abeyance=")
    assert "secure" in cookie.lower()
    assert me.json()["subject"] == "ada"
    assert ended.headers["set-cookie"].startswith('__Host-abeyance="";')


async def test_capabilities_beyond_the_size_of_a_cookie_are_refused(site: Site) -> None:
    key = new_key()
    with publishing() as publisher:
        publisher.keys = [published(key, kid="k")]
        about = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks": publisher.url}
        async with served(app_for(site, **about)) as api:
            many = [f"tenant:{number}:approve-everything" for number in range(200)]
            issued = signed(key, "k", capabilities=many)["Authorization"].split()[1]
            refused = await sign_in(api.http, issued)

    assert "session" in problem(refused, 413, "payload_too_large")["detail"]


async def test_a_sign_in_at_the_provider_has_the_providers_identity(
    site: Site, provider: Provider
) -> None:
    provider.claims["reads"] = {"team": "finance"}
    async with served(app_for(site, **at(provider))) as api, browser(api) as http:
        problem(await http.get("/me"), 401, "unauthenticated")
        done, back = await go_round(http, "/inbox?graph=gated#x")
        me = (await http.get("/me")).json()
        again = await http.get(back)

    assert (done.status_code, done.headers["location"]) == (303, "/inbox?graph=gated#x")
    assert me["subject"] == "ada"
    assert (me["capabilities"], me["groups"]) == (["runs:read"], ["finance"])
    assert (me["reads"], me["authenticated_by"]) == ({"team": ["finance"]}, "session")
    assert again.status_code == 400
    session = next(each for each in done.headers.get_list("set-cookie") if "abeyance=" in each)
    assert "httponly; max-age=28" in session.lower()


async def test_a_public_client_proves_itself_by_pkce_alone(site: Site, provider: Provider) -> None:
    provider.public = True
    app = app_for(site, **at(provider, oidc_client_secret=None))
    async with served(app) as api, browser(api) as http:
        assert (await go_round(http))[0].status_code == 303
        assert (await http.get("/me")).json()["subject"] == "ada"


async def test_an_access_token_for_this_service_says_what_its_owner_may(
    site: Site, provider: Provider
) -> None:
    about = {"jwt_issuer": provider.url, "jwt_audience": "api", "jwt_jwks": f"{provider.url}/keys"}
    seen: list[list[str]] = []
    async with served(app_for(site, **at(provider, **about))) as api:
        for access in (
            {"aud": "api", "capabilities": ["runs:read", "admin"]},
            {"aud": "other", "capabilities": ["admin"]},
            {"aud": "api", "capabilities": ["admin"], "sub": "eve"},
        ):
            provider.access = access
            async with browser(api) as http:
                assert (await go_round(http))[0].status_code == 303
                seen.append((await http.get("/me")).json()["capabilities"])

    assert seen == [["runs:read", "admin"], ["runs:read"], ["runs:read"]]


async def test_an_id_token_that_proves_nothing_begins_no_session(
    site: Site, provider: Provider
) -> None:
    usual = provider.claims
    faults: list[tuple[dict[str, Any], str]] = [
        ({"nonce": "other"}, "nonce"),
        ({"nonce": GONE}, "nonce"),
        ({"aud": "other"}, "(aud)"),
        ({"iss": "https://other.example"}, "(iss)"),
        ({"exp": 1}, "expired"),
        ({"azp": "other"}, "(azp)"),
        ({"sub": "timeout"}, "reserved"),
        ({"capabilities": ["*"]}, "every capability"),
    ]
    async with served(app_for(site, **at(provider))) as api, browser(api) as http:
        for claims, said in faults:
            provider.claims = {**usual, **claims}
            done, _ = await go_round(http)
            assert (done.status_code, said in done.text) == (401, True), done.text
            problem(await http.get("/me"), 401, "unauthenticated")


async def test_an_id_token_of_another_key_begins_no_session(site: Site, provider: Provider) -> None:
    async with served(app_for(site, **at(provider))) as api, browser(api) as http:
        assert (await go_round(http))[0].status_code == 303
        http.cookies.clear()
        provider.key = new_key()
        done, _ = await go_round(http)

    assert done.status_code == 401


async def test_only_the_browser_that_went_to_the_provider_comes_back(
    site: Site, provider: Provider
) -> None:
    async with served(app_for(site, **at(provider))) as api, browser(api) as mine:
        left = await mine.get("/signin/oidc")
        async with httpx.AsyncClient(trust_env=False, verify=PLAIN) as elsewhere:
            back = (await elsewhere.get(left.headers["location"])).headers["location"]
        async with browser(api) as theirs:
            stolen = await theirs.get(back)
            await theirs.get("/signin/oidc")
            mixed = await theirs.get(back)
        state = parse_qs(urlsplit(back).query)["state"][0]
        for wrong in (f"code=x&state={state}x", "code=x", "", f"state={state}&error=x&iss=y"):
            assert (await mine.get(f"/signin/callback?{wrong}")).status_code in (400, 401)
        problem(await mine.get("/me"), 401, "unauthenticated")

    assert (stolen.status_code, mixed.status_code) == (400, 400)
    assert "set-cookie" in stolen.headers
    assert "/token" not in provider.asked


async def test_a_refused_sign_in_at_the_provider_is_explained(
    site: Site, provider: Provider
) -> None:
    provider.error = "access_denied<script>"
    async with served(app_for(site, **at(provider))) as api, browser(api) as http:
        done, _ = await go_round(http)

    assert done.status_code == 401
    assert "access_denied&lt;script&gt;" in done.text
    assert done.headers["content-type"].startswith("text/html")


async def test_while_the_provider_is_away_who_is_signed_in_goes_on_and_others_read_why(
    site: Site,
) -> None:
    with ExitStack() as there:
        provider = there.enter_context(providing())
        async with (
            served(app_for(site, **at(provider))) as api,
            served(app_for(site, **at(provider))) as other,
            browser(api) as inside,
            browser(other) as outside,
        ):
            assert (await go_round(inside))[0].status_code == 303
            there.close()
            goes_on = await inside.get("/graphs")
            left = await outside.get("/signin/oidc?next=/inbox")

    assert goes_on.status_code == 200
    assert left.status_code == 503
    assert "cannot be reached" in left.text
    assert "Sign in at 127.0.0.1" in left.text


async def test_a_provider_that_publishes_something_else_is_not_used(
    site: Site, provider: Provider
) -> None:
    faults: list[dict[str, Any]] = [
        {"issuer": "https://other.example"},
        {"token_endpoint": "http://other.example/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": None},
    ]
    for provider.metadata in faults:
        async with served(app_for(site, **at(provider))) as api:
            asked = len(provider.asked)
            answers = [await api.http.get("/signin/oidc") for _ in "123"]
            assert [answer.status_code for answer in answers] == [503] * 3
            assert len(provider.asked) == asked + 1


@pytest.mark.parametrize(
    "path",
    [
        *("https://evil.example", "//evil.example", "/\\evil.example", "\\/evil", "/\t/evil"),
        *("/a\\b", "javascript:alert(1)", "inbox", "", "/a\nb", "/" + "x" * 2_000, "/é"),
    ],
)
def test_a_path_to_another_site_leads_to_the_inbox(path: str) -> None:
    assert own_path(path) == "/inbox"


async def test_a_sign_in_with_a_foreign_target_leads_to_the_inbox(
    site: Site, provider: Provider
) -> None:
    async with served(app_for(site, **at(provider))) as api, browser(api) as http:
        done, _ = await go_round(http, "//evil.example")
        page = await http.get("/signin?next=//evil.example")

    assert done.headers["location"] == "/inbox"
    assert 'data-next="/inbox"' in page.text


async def test_the_page_writes_what_it_is_given_as_text(site: Site, provider: Provider) -> None:
    async with served(app_for(site, **at(provider))) as api, browser(api) as http:
        page = await http.get("/signin", params={"next": '/inbox"><script>'})

    assert 'data-next="/inbox&quot;&gt;&lt;script&gt;"' in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert 'href="/signin/oidc?next=%2Finbox%22' in page.text
    assert 'id="with-token" hidden' in page.text


@pytest.mark.parametrize("path", ["/signin/signin.js", "/signin/signin.css"])
async def test_its_files_are_public(api: Api, path: str) -> None:
    assert (await api.http.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"oidc_issuer": "https://login.example"}, "ABEYANCE_OIDC_CLIENT_ID must be set"),
        ({"oidc_client_id": "x"}, "ABEYANCE_OIDC_ISSUER must be set"),
        ({"oidc_issuer": "http://login.example", "oidc_client_id": "x"}, "not a usable address"),
        (
            {"oidc_issuer": "https://l.example", "oidc_client_id": "x", "oidc_scopes": "email"},
            "must include openid",
        ),
    ],
)
def test_half_of_a_provider_stops_the_start_and_says_what_is_missing(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        create_app(Settings(**settings), {})

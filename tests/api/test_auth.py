"""Principals: without authentication a caller's headers name them, with it a token does."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from stack import Api, app_for, new_id, problem, served
from temporal_site import Site

from abeyance import SettingsError
from abeyance.api.app import create_app
from abeyance.settings import Settings
from abeyance.token_file import add_token, revoke_tokens

SUBJECT = "X-Abeyance-Principal"
CAPABILITIES = "X-Abeyance-Capabilities"
GROUPS = "X-Abeyance-Groups"
TOKENS = {
    "ada": ("a-token", ["runs:start", "runs:read", "runs:control", "runs:respond"]),
    "bob": ("b-token", ["runs:read"]),
}


def grants() -> list[dict[str, Any]]:
    return [
        {
            "subject": subject,
            "sha256": hashlib.sha256(token.encode()).hexdigest(),
            "capabilities": capabilities,
        }
        for subject, (token, capabilities) in TOKENS.items()
    ]


def named(*subjects: str) -> list[dict[str, Any]]:
    """Return entries of a tokens file that differ only in their subjects and hashes."""
    return [
        {**grants()[0], "subject": subject, "sha256": f"{number:064x}"}
        for number, subject in enumerate(subjects)
    ]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest_asyncio.fixture(scope="module")
async def locked(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    file = tmp_path_factory.mktemp("auth") / "tokens.json"
    file.write_text(json.dumps(grants()))
    async with served(app_for(site, tokens_file=file)) as api:
        yield api


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("nobody's"),
        {"Authorization": "Basic YTpi"},
        {"Authorization": "a-token"},
        {**bearer("a-token"), SUBJECT: "root"},
        {**bearer("a-token"), CAPABILITIES: "*"},
        {**bearer("a-token"), GROUPS: "finance"},
        {SUBJECT: "root"},
    ],
)
async def test_a_caller_without_a_valid_token_is_refused(
    locked: Api, headers: dict[str, str]
) -> None:
    run_id = new_id()
    body = {"graph": "gated", "input": {}, "run_id": run_id}
    refused = await locked.http.post("/runs", json=body, headers=headers)

    problem(refused, 401, "unauthenticated")
    assert refused.headers["www-authenticate"].startswith("Bearer")
    for path in ("/graphs", f"/runs/{run_id}", "/interrupts/x"):
        problem(await locked.http.get(path, headers=headers), 401, "unauthenticated")
    read = await locked.http.get(f"/runs/{run_id}", headers=bearer("a-token"))
    problem(read, 404, "unknown_run")


@pytest.mark.parametrize(
    ("header", "text"),
    [
        *((SUBJECT, name) for name in (b"", b"x" * 257, b"a\tb", b"\xff", b"timeout", b"temporal")),
        *((GROUPS, b"finance, " + name) for name in (b"x" * 257, b"a\tb", b"\xff")),
        *((header, b",".join(b"c%d" % n for n in range(201))) for header in (CAPABILITIES, GROUPS)),
    ],
)
async def test_a_header_that_names_nobody_or_too_much_is_refused(
    api: Api, header: str, text: bytes
) -> None:
    response = await api.http.get("/me", headers={header.encode(): text})

    (fault,) = problem(response, 422, "invalid_body")["errors"]
    assert (fault["in"], fault["pointer"]) == ("header", f"/{header.lower()}")


async def test_callers_name_themselves_if_there_is_no_authentication(api: Api) -> None:
    named = [(SUBJECT, "Zoë 漢"), (CAPABILITIES, "runs:read"), (GROUPS, "finance, Zoë's")]
    encoded = [(name.encode(), value.encode()) for name, value in named]
    nobody, ada = await api.http.get("/me"), await api.http.get("/me", headers=encoded)

    common: dict[str, Any] = {"reads": {}, "authenticated_by": "nothing", "expires_at": None}
    assert nobody.json() == {"subject": "local", "capabilities": ["*"], "groups": [], **common}
    groups = ["finance", "Zoë's"]
    assert ada.json() == {
        "subject": "Zoë 漢",
        "capabilities": ["runs:read"],
        "groups": groups,
        **common,
    }


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "(the file)"),
        ("{}", "(the file)"),
        ("[]", "no token"),
        ('[{"subject": "ada"}]', "/0/sha256"),
        ('[{"subject": "ada", "sha256": "zz", "capabilities": []}]', "/0/sha256"),
        (json.dumps([{**grants()[0], "token": "plain"}]), "/0/token"),
        (json.dumps([{**grants()[0], "capabilities": "all"}]), "/0/capabilities"),
        (json.dumps([{**grants()[0], "groups": "finance"}]), "/0/groups"),
        (json.dumps([{**grants()[0], "groups": [""]}]), "/0/groups/0"),
        (json.dumps([{**grants()[0], "reads": ["team"]}]), "/0/reads"),
        (json.dumps([{**grants()[0], "reads": {"team": []}}]), "/0/reads/team"),
        (json.dumps([{**grants()[0], "reads": {"team": [7]}}]), "/0/reads/team/0"),
        (json.dumps([{**grants()[0], "reads": {"a b": "c"}}]), "/0/reads"),
        (json.dumps([{**grants()[0], "subject": "timeout"}]), "reserved"),
        (json.dumps([{**grants()[0], "subject": "group:finance"}]), "reserved"),
        (json.dumps([grants()[0], {**grants()[0], "subject": "bob"}]), "twice"),
        (json.dumps(named("ada", "Ada")), "cannot have both subjects 'Ada' and 'ada'"),
        (json.dumps(named("jos\u00e9", "jose\u0301")), "people read them as the same"),
        (json.dumps(named("ada", "\uff41da")), "people read them as the same"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used_stops_the_start(
    tmp_path: Path, content: str, told: str
) -> None:
    file = tmp_path / "tokens.json"
    file.write_text(content)
    with pytest.raises(SettingsError) as caught:
        create_app(Settings(tokens_file=file), {})

    assert told in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_file_of_tokens_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot be read: No such file"):
        create_app(Settings(tokens_file=tmp_path / "none.json"), {})


async def test_a_running_api_accepts_a_new_token_and_refuses_a_revoked_one(
    site: Site, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.json"
    ada = bearer(add_token(file, "ada", ["runs:read"]))
    async with served(app_for(site, tokens_file=file)) as api:
        bob = bearer(add_token(file, "bob", ["runs:read"]))
        # The scheme of a header may be written in any case.
        bob = {"authorization": bob["Authorization"].replace("Bearer", "bearer")}
        added = [(await api.http.get("/runs", headers=who)).status_code for who in (ada, bob)]
        revoke_tokens(file, "ada")
        revoked = [(await api.http.get("/runs", headers=who)).status_code for who in (ada, bob)]
        revoke_tokens(file, "bob")
        empty = (await api.http.get("/runs", headers=bob)).status_code

    assert (added, revoked, empty) == ([200, 200], [401, 200], 401)


async def test_a_copy_with_the_time_and_the_size_of_the_file_replaces_its_tokens(
    site: Site, tmp_path: Path
) -> None:
    file, other = tmp_path / "tokens.json", tmp_path / "other.json"
    ada = bearer(add_token(file, "ada", ["runs:read"]))
    eve = bearer(add_token(other, "eve", ["runs:read"]))
    async with served(app_for(site, tokens_file=file)) as api:
        before = file.stat()
        file.write_bytes(other.read_bytes())
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        codes = [(await api.http.get("/runs", headers=who)).status_code for who in (ada, eve)]

    assert codes == [401, 200]


async def test_while_the_file_cannot_be_used_its_former_tokens_count_and_the_log_says_so_once(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens.json"
    ada = bearer(add_token(file, "ada", ["runs:read"]))
    content = file.read_text()
    async with served(app_for(site, tokens_file=file)) as api:
        for broken in (content[:-5], None, None, content[:-4]):
            if broken is None:
                file.unlink(missing_ok=True)
            else:
                file.write_text(broken)
            assert (await api.http.get("/runs", headers=ada)).status_code == 200
            assert (await api.http.get("/runs", headers=ada)).status_code == 200
        told = [record.getMessage() for record in caplog.records if "still count" in record.message]
        file.write_text("[]")
        assert (await api.http.get("/runs", headers=ada)).status_code == 401

    assert [str(file) in text for text in told] == [True] * 3

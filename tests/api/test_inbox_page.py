"""The files of the inbox as the API serves them, and their headers. tests/browser shows how it works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stack import Api

FOLDER = Path(__file__).parents[2] / "api" / "inbox"
FROM_A_LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}


async def test_the_root_leads_to_the_inbox(api: Api) -> None:
    for path in ("/", "/inbox/"):
        response = await api.http.get(path)

        assert (response.status_code, response.headers["location"]) == (307, "/inbox")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/inbox", "text/html"),
        ("/inbox/runs", "text/html"),
        ("/inbox/grants", "text/html"),
        ("/inbox/inbox.css", "text/css"),
        ("/inbox/inbox.js", "text/javascript"),
        ("/inbox/form.js", "text/javascript"),
        ("/inbox/markup.js", "text/javascript"),
    ],
)
async def test_its_files_come_with_their_type_and_run_nothing_that_is_not_ours(
    api: Api, path: str, kind: str
) -> None:
    response = await api.http.get(path)
    policy = response.headers["content-security-policy"]

    assert response.status_code == 200
    assert response.headers["content-type"] == f"{kind}; charset=utf-8"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("path", ["/inbox", "/inbox/runs/r"])
async def test_a_page_names_all_that_its_script_imports_so_that_nothing_is_asked_for_late(
    api: Api, path: str
) -> None:
    page = (await api.http.get(path)).text
    named = set(re.findall(r'="/inbox/(\w+\.js)"', page))

    imported = {
        name
        for each in named
        for name in re.findall(r'from "\./([\w.]+)"', (FOLDER / each).read_text("utf-8"))
    }
    assert imported
    assert imported <= named


async def test_a_link_from_another_site_leads_to_the_page_and_to_nothing_else(api: Api) -> None:
    async def status(path: str, headers: dict[str, str]) -> int:
        return (await api.http.get(path, headers=headers)).status_code

    assert await status("/inbox", FROM_A_LINK) == 200
    for page in ("runs", "runs/r", "approvals", "grants"):
        assert await status(f"/inbox/{page}", FROM_A_LINK) == 200
    assert await status("/", FROM_A_LINK) == 307
    assert await status("/interrupts", FROM_A_LINK) == 403
    assert await status("/inbox/inbox.js", FROM_A_LINK) == 403
    assert await status("/inbox", {"Sec-Fetch-Site": "cross-site"}) == 403


def test_pages_never_write_a_runs_text_as_markup() -> None:
    programs = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.js")}
    page = (FOLDER / "page.html").read_text("utf-8")
    # This is the one place for HTML, which the service has made safe.
    programs["markup.js"] = programs["markup.js"].replace("created.innerHTML = html;", "", 1)

    for program in programs.values():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", program
        )
    # The policy runs neither inline scripts nor inline styles, so the page could not use them.
    assert not re.search(r"<script(?![^>]* src=)|\son\w+=|<style| style=", page)

"""The inbox: pages on which approvers read questions and answer them.

Their files are public. A page gets its data from the API, with the reader's session. It loads nothing
from other hosts, and writes data as text; what it writes as markup is what `prompts.safe_html` made safe.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response
from starlette.responses import RedirectResponse

router = APIRouter(include_in_schema=False)

PATH: Final = "/inbox"

_FOLDER: Final = Path(__file__).parent
_KINDS: Final = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_FILES: Final = {
    path.name: path.read_text(encoding="utf-8")
    for path in _FOLDER.iterdir()
    if path.suffix.removeprefix(".") in _KINDS
}


@router.get("/")
async def home() -> Response:
    """Redirect to the inbox."""
    return RedirectResponse(PATH)


@router.get(f"{PATH}/")
async def without_slash() -> Response:
    """Redirect to the inbox."""
    return RedirectResponse(PATH)


@router.get(PATH)
async def page() -> Response:
    """Serve the page, which has no data and requires no capability."""
    return _file("page.html")


@router.get(f"{PATH}/runs/{{run_id}}")
async def run_page(run_id: str) -> Response:  # noqa: ARG001 the page reads it from its address
    """Serve the page of a run, which has no data and requires no capability."""
    return _file("run.html")


@router.get(f"{PATH}/approvals")
async def approvals_page() -> Response:
    """Serve the report of approvals, which has no data and requires no capability."""
    return _file("approvals.html")


def _file(name: str) -> Response:
    kind = _KINDS[name.rpartition(".")[2]]
    return Response(_FILES[name], media_type=kind, headers=_HEADERS)


for _name in _FILES:
    if not _name.endswith(".html"):
        router.add_api_route(f"{PATH}/{_name}", partial(_file, _name))

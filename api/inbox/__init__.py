"""The inbox: pages on which approvers read questions and answer them.

Their files are public. A page gets its data from the API, with the reader's session. It loads nothing
from other hosts, and writes data as text, except for prompts that `prompts.safe_html` has made safe.
"""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Final

from fastapi import APIRouter, Response
from starlette.responses import RedirectResponse

from abeyance.api import pages

router = APIRouter(include_in_schema=False)

PATH: Final = "/inbox"

_FOLDER: Final = Path(__file__).parent
_FILES: Final = {
    path.name: path.read_text(encoding="utf-8")
    for path in _FOLDER.iterdir()
    if path.suffix.removeprefix(".") in pages.KINDS
}
_PAGES: Final = {
    "": "inbox",
    "/runs": "runs",
    "/runs/{run_id}": "run",
    "/approvals": "approvals",
    "/grants": "grants",
}
"""The script of each page. The pages have no data and require no capability."""
_IMPORT: Final = re.compile(r'^import .*"\./([\w.]+)";$', re.MULTILINE)


def _imported(script: str) -> list[str]:
    """Return the scripts that a script imports, directly and indirectly: a browser then asks for all of
    them at once.
    """
    found = [script]
    for name in found:
        found += [each for each in _IMPORT.findall(_FILES[name]) if each not in found]
    return found[1:]


def _page(name: str) -> str:
    links = (f'<link rel="modulepreload" href="{PATH}/{each}">' for each in _imported(f"{name}.js"))
    return Template(_FILES["page.html"]).substitute(page=name, modules="\n  ".join(links))


@router.get("/")
async def home() -> Response:
    """Redirect to the inbox."""
    return RedirectResponse(PATH)


@router.get(f"{PATH}/")
async def without_slash() -> Response:
    """Redirect to the inbox."""
    return RedirectResponse(PATH)


for _path, _name in _PAGES.items():
    pages.serve(router, f"{PATH}{_path}", _page(_name))

for _name, _content in _FILES.items():
    if not _name.endswith(".html"):
        pages.serve(router, f"{PATH}/{_name}", _content)

"""The inbox: pages on which approvers read questions and answer them.

Their files are public. A page gets its data from the API, with the reader's session. It loads nothing
from other hosts, and writes data as text; what it writes as markup is what `safe_html` made safe.
"""

from __future__ import annotations

from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Response
from starlette.responses import RedirectResponse

from abeyance.core.text import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

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
_TAGS: Final = frozenset(
    {"a", "b", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "i"}
    | {"li", "ol", "p", "pre", "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"}
)
_SCHEMES: Final = frozenset({"https", "http", "mailto"})
_ATTRIBUTES: Final = {"a": {"href", "title"}, "th": {"align"}, "td": {"align"}, "ol": {"start"}}


@router.get("/")
async def home() -> Response:
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


def _file(name: str) -> Response:
    kind = _KINDS[name.rpartition(".")[2]]
    return Response(_FILES[name], media_type=kind, headers=_HEADERS)


for _name in _FILES:
    if not _name.endswith(".html"):
        router.add_api_route(f"{PATH}/{_name}", partial(_file, _name))


def safe_html(text: str) -> str | None:
    """Return a Markdown text as safe HTML; None without the libraries, which the extra `people` has.

    The text comes from runs, and so perhaps from models and strangers. `markdown-it-py` leaves HTML in it
    as text, and `nh3` keeps only what is listed above.

    Headings begin at the third level, below those of the page. Links open in another tab and tell their
    target nothing. Pictures are left out: fetching one would tell its host who reads the question.
    """
    if not (find_spec("markdown_it") and find_spec("nh3")):
        return None
    import nh3  # noqa: PLC0415 of an extra

    html = _parser().render(visible(text))
    for level in (6, 5, 4, 3, 2, 1):
        below = min(6, level + 2)
        html = html.replace(f"<h{level}>", f"<h{below}>").replace(f"</h{level}>", f"</h{below}>")
    return nh3.clean(
        html,
        tags=set(_TAGS),
        attributes=_ATTRIBUTES,
        url_schemes=set(_SCHEMES),
        link_rel="noopener noreferrer",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 of an extra

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True})
    return parser.enable(["table", "strikethrough"]).disable(["image"])

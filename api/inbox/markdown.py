"""Markdown in a prompt, as HTML that is safe to show.

The text comes from runs, and so perhaps from models and strangers. `markdown-it-py` leaves HTML in it as
text, and `nh3` keeps only what is listed here. Both come with the extra `people`; without it prompts are
shown as plain text.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from abeyance.core.text import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_TAGS: Final = frozenset(
    {"a", "b", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "i"}
    | {"li", "ol", "p", "pre", "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"}
)
_SCHEMES: Final = frozenset({"https", "http", "mailto"})
_ATTRIBUTES: Final = {"a": {"href", "title"}, "th": {"align"}, "td": {"align"}, "ol": {"start"}}


def is_available() -> bool:
    """Return whether the libraries are installed."""
    return all(find_spec(name) is not None for name in ("markdown_it", "nh3"))


def safe_html(text: str) -> str | None:
    """Return a Markdown text as safe HTML; None without the libraries.

    Headings begin at the third level, below those of the page. Links open in another tab and tell their
    target nothing. Pictures are left out: fetching one would tell its host who reads the question.
    """
    if not is_available():
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

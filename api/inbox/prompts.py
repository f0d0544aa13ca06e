"""A prompt, which may be Markdown, as safe HTML: values in it are text, and no part of it is hidden.

While it is parsed, an unused character replaces each value, so that no value can be Markdown. If the
parser would leave out a part of the prompt, it is shown as it is.
"""

from __future__ import annotations

import html
import string
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from abeyance.core.text import UNSEEN, visible
from abeyance.views import InterruptView

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_BY_AUTHORS: Final = frozenset({"question", "rule", "approval"})
"""Kinds whose prompts authors write, perhaps in Markdown. A run and a server write plain texts."""
_TAGS: Final = frozenset(
    {"a", "b", "bdi", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "i"}
    | {"li", "ol", "p", "pre", "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"}
)
_SCHEMES: Final = frozenset({"https", "http", "mailto"})
_ATTRIBUTES: Final = {"a": {"href"}, "th": {"align"}, "td": {"align"}, "ol": {"start"}}
_UNUSED: Final = range(0xF0000, 0xFFFFE)
"""Characters without a meaning: too many for one prompt to have them all."""
_MARKS: Final = frozenset(string.punctuation + string.whitespace)
"""The characters of Markdown: a rendered prompt may lack some of them."""


def html_of(question: InterruptView) -> str | None:
    """Return the prompt of a question as safe HTML; None if it is a plain text, or cannot be rendered."""
    if question.kind not in _BY_AUTHORS or question.abridged or question.degraded:
        return None
    return safe_html(question.prompt, question.prompt_values)


def safe_html(prompt: str, values: Sequence[tuple[int, int]] = ()) -> str | None:
    """Return a prompt as safe HTML; None without the libraries, which the extra `people` installs.

    `values` are the beginnings and ends of the values in it. `markdown-it-py` leaves HTML in it as text,
    and `nh3` keeps only the tags above. Headings begin at the third level, below those of the page.
    A link shows its address, opens in another tab and tells its target nothing. Pictures are left out:
    fetching one would tell its host who reads the question.
    """
    if not (find_spec("markdown_it") and find_spec("nh3")):
        return None
    import nh3  # noqa: PLC0415 of an extra

    source, texts = _without_values(prompt, values)
    parser = _parser()
    tokens = parser.parse(source)
    said = "".join(_read(tokens, texts))
    rendered = parser.renderer.render(tokens, parser.options, {})
    if _letters(said) != _letters(source):
        rendered = f"<p>{html.escape(source)}</p>".replace("\n", "<br>\n")
    # The parser has resolved entities and escapes by now, so that none of them hides a character.
    rendered = UNSEEN.sub(lambda match: html.escape(visible(match[0])), rendered)
    for character, text in texts.items():
        shown = f"<bdi>{html.escape(visible(text))}</bdi>"
        rendered = rendered.replace(character, shown)
    for level in (6, 5, 4, 3, 2, 1):
        below = min(6, level + 2)
        rendered = rendered.replace(f"<h{level}>", f"<h{below}>")
        rendered = rendered.replace(f"</h{level}>", f"</h{below}>")
    return nh3.clean(
        rendered,
        tags=set(_TAGS),
        attributes=_ATTRIBUTES,
        url_schemes=set(_SCHEMES),
        link_rel="noopener noreferrer",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


def _without_values(
    prompt: str, values: Sequence[tuple[int, int]]
) -> tuple[str, Mapping[str, str]]:
    """Return the prompt with one character for each value, and the value of each character."""
    used = set(prompt)
    unused = (chr(code) for code in _UNUSED if chr(code) not in used)
    texts = {
        character: prompt[begin:end]
        for character, (begin, end) in zip(unused, values, strict=False)
    }
    parts, last = [], 0
    for character, (begin, end) in zip(texts, values, strict=True):
        parts += [prompt[last:begin], character]
        last = max(end, last)
    return "".join([*parts, prompt[last:]]), texts


def _read(tokens: list[Token], texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the visible text of some tokens, after adding text to them that would be seen nowhere."""
    numbers: list[int] = []
    for token in tokens:
        match token.type:
            case "inline":
                token.children = _with_addresses(token.children or [], texts)
                yield from (each.content for each in token.children)
            case "fence":
                token.content, token.info = f"{token.info}\n{token.content}".lstrip("\n"), ""
                yield token.content
            case "code_block":
                yield token.content
            case "ordered_list_open":
                numbers.append(int(token.attrs.get("start", 1)))
            case "list_item_open" if token.info:
                yield str(numbers[-1])
                numbers[-1] += 1
            case "ordered_list_close":
                numbers.pop()
            case _:
                pass


def _with_addresses(tokens: list[Token], texts: Mapping[str, str]) -> list[Token]:
    """Return the tokens of a line, with the address and the title of each link as a text behind it."""
    from markdown_it.token import Token  # noqa: PLC0415 of an extra

    found: list[Token] = []
    about = ""
    for token in tokens:
        found.append(token)
        if token.type == "link_open":
            address, title = str(token.attrs["href"]), token.attrs.pop("title", "")
            about = "" if token.info == "auto" else f" ({address}{title and f' {title}'})"
            token.attrs["href"] = _address(address, texts)
        elif token.type == "link_close" and about:
            found.append(Token("text", "", 0, content=about))
    return found


def _address(address: str, texts: Mapping[str, str]) -> str:
    """Return the address of a link, in which a value is the whole address or a part of path or query."""
    if address in texts:
        return texts[address]
    return "".join(quote(texts[each], safe="") if each in texts else each for each in address)


def _letters(text: str) -> str:
    return "".join(each for each in text if each not in _MARKS)


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 of an extra

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True})
    # Keep an address as its author wrote it: the rendered text is compared with the source.
    parser.normalizeLink = parser.normalizeLinkText = str  # type: ignore[method-assign,assignment]
    parser.enable(["table", "strikethrough"])
    return parser.disable(["image", "reference", "entity"])

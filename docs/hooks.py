"""What the site has beyond the pages in this folder: the HTTP reference, and files of the repository.

mkdocs calls `on_files` and `on_page_markdown`. The HTTP reference is written from the OpenAPI document,
which the API makes of its own code. A link that leaves `docs/` leads to a page with the text of that
file, so that a reader of the site needs nothing else.
"""  # noqa: INP001 this folder is not a package

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_REPOSITORY: Final = "repository"
_NOT_FOUND_BY_SEARCH: Final = "---\nsearch:\n  exclude: true\n---\n"
_LANGUAGES: Final = {".py": "python", ".yml": "yaml", ".yaml": "yaml", ".toml": "toml"}

# ---------------------------------------------------------------------------------- calls of mkdocs


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the HTTP reference, and every file of the repository that a page links to."""
    from mkdocs.structure.files import File, InclusionLevel  # noqa: PLC0415 only mkdocs has it

    from abeyance.api.app import create_app  # noqa: PLC0415 tests of the rest need no application
    from abeyance.settings import Settings  # noqa: PLC0415 the same

    document = create_app(Settings(), {}).openapi()
    files.append(File.generated(config, "reference/http.md", content=http_reference(document)))
    known: set[str] = set()
    waiting = [f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md")]
    while waiting:
        for path in _linked(waiting.pop()) - known:
            known.add(path)
            page = File.generated(config, _page_of(path), content=_text_of(path))
            page.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(page)
            waiting.append(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 mkdocs passes them by name
    """Let links to files of the repository lead to their pages."""
    return rewritten(markdown, page.file.src_uri)


# ------------------------------------------------------------------------- files of the repository


def rewritten(markdown: str, uri: str) -> str:
    """The text of a page of the site, with its links to files of the repository."""
    of_repository = uri.startswith(f"{_REPOSITORY}/")
    path = uri.removeprefix(f"{_REPOSITORY}/") if of_repository else f"docs/{uri}"
    here = posixpath.dirname(path)

    def link(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if re.match(r"[a-z]+:", target):
            return match[0]
        full = _resolved(here, target)
        inside = full.startswith("docs/")
        if inside and not of_repository:
            return match[0]
        to = full.removeprefix("docs/") if inside else _page_of(full)
        return before + posixpath.relpath(to, posixpath.dirname(uri)) + after

    return _LINK.sub(link, markdown)


def _linked(path: str) -> set[str]:
    """The files outside docs/ to which a page of the repository links."""
    if not path.endswith(".md") or not (_ROOT / path).exists():
        return set()
    text = (_ROOT / path).read_text(encoding="utf-8")
    targets = [target for _, target, _ in _LINK.findall(text) if not re.match(r"[a-z]+:", target)]
    full = {_resolved(posixpath.dirname(path), target) for target in targets}
    return {each for each in full if not each.startswith("docs/")}


def _resolved(folder: str, target: str) -> str:
    path = posixpath.normpath(posixpath.join(folder, target))
    return f"{path}/README.md" if (_ROOT / path / "README.md").exists() else path


def _page_of(path: str) -> str:
    return f"{_REPOSITORY}/{path}" if path.endswith(".md") else f"{_REPOSITORY}/{path}.md"


def _text_of(path: str) -> str:
    text = (_ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return _NOT_FOUND_BY_SEARCH + text
    language = _LANGUAGES.get(Path(path).suffix, "text")
    return f"{_NOT_FOUND_BY_SEARCH}# `{path}`\n\n````{language}\n{text}````\n"


# ---------------------------------------------------------------------------------- the HTTP reference


def http_reference(document: Mapping[str, Any]) -> str:
    """A page with every call of the API, and every shape that it takes or returns."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield from ("# HTTP", "", *document["info"]["description"].splitlines(), "")
    yield "This page is made from the OpenAPI document that the API itself serves, `GET /openapi.json`."
    yield "[HTTP](../how-to/http.md) shows the same calls in the order in which you need them, and"
    yield "[refusals](refusals.md) has every code that a call may be refused with."
    tag = None
    calls = [
        (call["tags"][0], method.upper(), path, call)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
    ]
    order = list(dict.fromkeys(call[0] for call in calls))
    for group, method, path, call in sorted(calls, key=lambda each: order.index(each[0])):
        if group != tag:
            tag = group
            yield from ("", f"## {tag.capitalize()}")
        yield from ("", f"### `{method} {path}`", "", call.get("description", call["summary"]), "")
        yield from _parameters(call.get("parameters", []))
        for form in call.get("requestBody", {}).get("content", {}).values():
            yield from (f"Body: {_kind(form['schema'])}", "")
            yield from _example(_body_example(document, form))
        for status, answer in call["responses"].items():
            # What every call may refuse is on a page of its own.
            if "$ref" not in answer:
                yield from _answer(status, answer)
    yield from ("", "## Shapes")
    for name, schema in document["components"]["schemas"].items():
        yield from ("", f"### {name}", "", schema.get("description", ""), "")
        yield from _fields(schema)


def _parameters(parameters: list[dict[str, Any]]) -> Iterator[str]:
    if parameters:
        yield from ("| parameter | in | type | |", "|---|---|---|---|")
        for each in parameters:
            name = f"`{each['name']}`" + (" (required)" if each["required"] else "")
            about = _cell(each.get("description", ""))
            yield f"| {name} | {each['in']} | {_kind(each['schema'])} | {about} |"
        yield ""


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    if "properties" not in schema:
        yield _kind(schema)
        return
    required = schema.get("required", ())
    yield from ("| field | type | |", "|---|---|---|")
    for name, field in schema["properties"].items():
        mark = " (required)" if name in required else ""
        yield f"| `{name}`{mark} | {_kind(field)} | {_cell(field.get('description', ''))} |"


def _answer(status: str, answer: Mapping[str, Any]) -> Iterator[str]:
    for form in (answer.get("content") or {"": {}}).values():
        kind = f": {_kind(form['schema'])}" if form.get("schema") else ""
        yield from (f"**{status}** {answer['description'].rstrip('.')}{kind}", "")
        yield from _example(form.get("example"))


def _example(value: Any) -> Iterator[str]:
    match value:
        case None:
            pass
        case str():
            yield from ("```text", *value.splitlines(), "```", "")
        case _:
            yield from ("```json", *json.dumps(value, indent=2).splitlines(), "```", "")


def _body_example(document: Mapping[str, Any], form: Mapping[str, Any]) -> Any:
    schemas = [form["schema"]]
    if name := re.search(r"#/components/schemas/(\w+)", json.dumps(form["schema"])):
        schemas.append(document["components"]["schemas"][name[1]])
    examples = [each["value"] for each in form.get("examples", {}).values()]
    return next(
        iter([*examples, *(each for schema in schemas for each in schema.get("examples", ()))]),
        None,
    )


def _kind(schema: Mapping[str, Any]) -> str:
    """A type in a few words, with a link where it is a shape of this page."""
    match schema:
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"anyOf": several} | {"oneOf": several}:
            return " or ".join(dict.fromkeys(_kind(each) for each in several))
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            return f"`{value}`"
        case {"type": "array", "items": items}:
            return f"list of {_kind(items)}"
        case {"type": "object", "additionalProperties": {**values}} if values:
            return f"object of {_kind(values)}"
        case {"type": str(name)}:
            return str(schema.get("format", name))
        case _:
            return "any JSON"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

"""Whether what one place gives is what another takes, as far as schemas can tell before a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from abeyance.core.canonical import Json
from abeyance.values.schema import schema_of
from abeyance.values.statemodel import StateModel

Kinds: TypeAlias = frozenset[str]

_ALL: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples", "$defs"})
_NAMED: Final = frozenset({"properties", "$defs", "patternProperties"})
_DEFINED: Final = "#/$defs/"
_PLAIN: Final[Mapping[str, tuple[Json, ...]]] = {
    "items": ({}, True),
    "additionalProperties": ({}, True),
}
"""What says nothing about a list or a mapping."""
_DEEPEST: Final = 20


def field_schema(states: StateModel, name: str) -> Json:
    """What a patch may set a field to; None where nothing is known of it."""
    if name not in states.fields:
        return None
    try:
        return schema_of(states.patch_type(name))
    except ValueError:
        return None


def misfit(given: Json, taken: Json) -> str | None:
    """Why nothing that is given could be taken, in words; None if something could, or nobody knows."""
    gives, takes = kinds(given), kinds(taken)
    if gives & takes:
        return None
    return f"it is {in_words(gives)}, and has to be {in_words(takes)}"


def kinds(schema: Json) -> Kinds:
    """The kinds of JSON that a schema lets through, and perhaps some that it does not."""
    return _kinds(schema, _definitions(schema), 0)


def in_words(found: Kinds) -> str:
    """Kinds, as an author is told them: where every number is let through, so is a whole one."""
    told = found - {"integer"} if "number" in found else found
    return " or ".join(sorted(told)) or "nothing"


def narrowed(answers: Json, field: Json) -> Json:
    """The schema of answers, so that it lets through nothing that the field would not take.

    It is left as it is where that is so already: people are shown it.
    """
    if not isinstance(answers, Mapping) or not isinstance(field, Mapping):
        return answers
    if not _bare(answers):
        return dict(field)
    if _takes(field, answers, field, answers):
        return answers
    own, other = _definitions(answers), _definitions(field)
    renamed = {name: f"{name}__field" for name in other if name in own and own[name] != other[name]}

    def rename(reference: str) -> str:
        name = reference.removeprefix(_DEFINED)
        return f"{_DEFINED}{renamed.get(name, name)}"

    inner = _referring({key: part for key, part in field.items() if key != "$defs"}, rename)
    defined = {renamed.get(name, name): _referring(part, rename) for name, part in other.items()}
    both: dict[str, Json] = {**answers, "allOf": [*answers.get("allOf", []), inner]}
    return {**both, "$defs": {**own, **defined}} if own or defined else both


def _takes(field: Json, answers: Json, field_root: Json, answers_root: Json) -> bool:
    """Whether every answer is sure to be taken."""
    field, answers = _resolved(field, field_root), _resolved(answers, answers_root)
    if not isinstance(field, Mapping) or not isinstance(answers, Mapping):
        return field is True
    bare = _bare(field)
    if not bare:
        return True
    if bare == _bare(answers):
        ours, theirs = _definitions(field_root), _definitions(answers_root)
        return all(ours.get(name) == part for name, part in theirs.items())
    if set(_bare(answers)) == {"anyOf"}:
        return all(_takes(field, each, field_root, answers_root) for each in answers["anyOf"])
    if set(bare) == {"anyOf"}:
        return any(_takes(each, answers, field_root, answers_root) for each in field["anyOf"])
    says_nothing_more = all(
        key == "type" or (key in _PLAIN and any(value == each for each in _PLAIN[key]))
        for key, value in bare.items()
    )
    return says_nothing_more and _kinds(answers, _definitions(answers_root), 0) <= kinds(field)


def _kinds(schema: Json, definitions: Mapping[str, Json], depth: int) -> Kinds:
    if schema is False:
        return frozenset()
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return _ALL

    def among(parts: Iterable[Json]) -> list[Kinds]:
        return [_kinds(part, definitions, depth + 1) for part in parts]

    found = _ALL
    if "type" in schema:
        named = schema["type"]
        found &= _of_types([named] if isinstance(named, str) else named)
    if "const" in schema:
        found &= _of_values([schema["const"]])
    if "enum" in schema:
        found &= _of_values(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            found &= frozenset().union(*among(schema[key]))
    for each in among(schema.get("allOf", [])):
        found &= each
    if str(schema.get("$ref", "")).startswith(_DEFINED):
        name = schema["$ref"].removeprefix(_DEFINED)
        found &= _kinds(definitions.get(name), definitions, depth + 1)
    return found


def _of_types(names: Iterable[str]) -> Kinds:
    return frozenset(
        kind for name in names for kind in (("number", "integer") if name == "number" else (name,))
    )


def _of_values(values: Iterable[Json]) -> Kinds:
    return frozenset(_kind(value) for value in values)


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"


def _bare(schema: Mapping[str, Json]) -> dict[str, Json]:
    """A schema without what it says for people alone."""
    return {
        key: (
            {name: _bared(part) for name, part in value.items()}
            if key in _NAMED and isinstance(value, Mapping)
            else _bared(value)
        )
        for key, value in schema.items()
        if key not in _ANNOTATIONS
    }


def _bared(part: Json) -> Json:
    match part:
        case Mapping():
            return _bare(part)
        case list():
            return [_bared(each) for each in part]
        case _:
            return part


def _resolved(schema: Json, root: Json) -> Json:
    seen: set[str] = set()
    while isinstance(schema, Mapping) and set(_bare(schema)) == {"$ref"}:
        reference = schema["$ref"]
        if reference in seen or not str(reference).startswith(_DEFINED):
            return schema
        seen.add(reference)
        schema = _definitions(root).get(reference.removeprefix(_DEFINED))
    return schema


def _definitions(schema: Json) -> Mapping[str, Json]:
    found = schema.get("$defs", {}) if isinstance(schema, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


def _referring(part: Json, rename: Callable[[str], str]) -> Json:
    match part:
        case Mapping():
            return {
                key: rename(value)
                if key == "$ref" and str(value).startswith(_DEFINED)
                else _referring(value, rename)
                for key, value in part.items()
            }
        case list():
            return [_referring(each, rename) for each in part]
        case _:
            return part

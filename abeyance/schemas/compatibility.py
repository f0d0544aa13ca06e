"""Whether what one place gives is what another takes, as far as schemas can tell before a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from abeyance.core.json import Json
from abeyance.schemas.json_schema import schema_of
from abeyance.schemas.json_types import DEFINED, definitions_of, in_words, kinds
from abeyance.schemas.state_model import StateModel

_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples", "$defs"})
_NAMED: Final = frozenset({"properties", "$defs", "patternProperties"})
_PLAIN: Final[Mapping[str, tuple[Json, ...]]] = {
    "items": ({}, True),
    "additionalProperties": ({}, True),
}
"""What says nothing about a list or a mapping."""


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
    own, other = definitions_of(answers), definitions_of(field)
    renamed = {name: f"{name}__field" for name in other if name in own and own[name] != other[name]}

    def rename(reference: str) -> str:
        name = reference.removeprefix(DEFINED)
        return f"{DEFINED}{renamed.get(name, name)}"

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
        ours, theirs = definitions_of(field_root), definitions_of(answers_root)
        return all(ours.get(name) == part for name, part in theirs.items())
    if set(_bare(answers)) == {"anyOf"}:
        return all(_takes(field, each, field_root, answers_root) for each in answers["anyOf"])
    if set(bare) == {"anyOf"}:
        return any(_takes(each, answers, field_root, answers_root) for each in field["anyOf"])
    says_nothing_more = all(
        key == "type" or (key in _PLAIN and any(value == each for each in _PLAIN[key]))
        for key, value in bare.items()
    )
    return says_nothing_more and kinds(answers, definitions_of(answers_root)) <= kinds(field)


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
        if reference in seen or not str(reference).startswith(DEFINED):
            return schema
        seen.add(reference)
        schema = definitions_of(root).get(reference.removeprefix(DEFINED))
    return schema


def _referring(part: Json, rename: Callable[[str], str]) -> Json:
    match part:
        case Mapping():
            return {
                key: rename(value)
                if key == "$ref" and str(value).startswith(DEFINED)
                else _referring(value, rename)
                for key, value in part.items()
            }
        case list():
            return [_referring(each, rename) for each in part]
        case _:
            return part

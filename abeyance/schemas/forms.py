"""The parts of declaration forms: strict mappings, texts with a pattern, faults in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias, get_origin

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Discriminator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import (
    CoreSchema,
    ErrorDetails,
    InitErrorDetails,
    PydanticCustomError,
    core_schema,
)

from abeyance.core.text import truncate

_SHOWN: Final = 60

REFERENCE: Final = r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*"
"""`module:name`, in syntax common to every regular expression language."""


_SORTS: Final = frozenset({"text", "mapping", "list", "number", "type"})
"""The tags of the sorts of a value."""
_UNKNOWN: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
"""The errors of pydantic about a key that there is not."""
INSIDE: Final = _UNKNOWN | {"union_tag_invalid", "union_tag_not_found"}
"""The errors about something inside of the value, which they name."""


def _sort(value: object) -> str | None:
    """Return the sort of a value, so that a wrong one is one fault and not one for each union member."""
    match value:
        case _ if isinstance(value, type) or get_origin(value) is not None:
            return "type"
        case str():
            return "text"
        case _ if isinstance(value, Mapping) or is_dataclass(value):
            return "mapping"
        case list() | tuple():
            return "list"
        case int() | float() | timedelta() if not isinstance(value, bool):
            return "number"
        case _:
            return None


def by_sort(what: str) -> Discriminator:
    """Discriminate a union by the tags `text`, `mapping`, `list`, `number` and `type`."""
    message = f"should be {what}"
    return Discriminator(_sort, custom_error_type="wrong_sort", custom_error_message=message)


class Written:
    """Annotation of a string that must match a pattern; `what` describes it."""

    def __init__(self, pattern: str, what: str) -> None:
        self._pattern = pattern
        self._what = what

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._matching, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "pattern": f"^({self._pattern})$", "description": self._what}

    def _matching(self, value: str) -> str:
        if re.fullmatch(self._pattern, value) is None:
            raise PydanticCustomError("pattern", "should be {what}", {"what": self._what})
        return value


Text: TypeAlias = Annotated[str, Tag("text")]
Reference: TypeAlias = Annotated[str, Written(REFERENCE, "module:name"), Tag("text")]
Names: TypeAlias = Annotated[
    Text | Annotated[Sequence[str], Tag("list")], by_sort("a name, or a list of names")
]


class Form(BaseModel):
    """A mapping with these keys and no others. `GONE` are keys of before, with what to write instead."""

    GONE: ClassVar[Mapping[str, str]] = {}
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        form = handler.resolve_ref_schema(handler(schema))
        for own, other in cls._other_words():
            form["properties"][other] = form["properties"][own]
            form["not"] = {"required": [own, other]}
        return form

    @classmethod
    def _other_words(cls) -> list[tuple[str, str]]:
        """Return the keys that have an alias, with the alias."""
        choices = [field.validation_alias for field in cls.model_fields.values()]
        words = [choice.choices for choice in choices if isinstance(choice, AliasChoices)]
        return [(str(own), str(other)) for own, other in words]

    @model_validator(mode="wrap")
    @classmethod
    def _list_known_keys(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False)
            details = [cls._reworded(entry) for entry in faults]
            raise ValidationError.from_exception_data(error.title, details) from None

    @classmethod
    def _reworded(cls, entry: ErrorDetails) -> InitErrorDetails:
        message = entry["msg"]
        if entry["type"] == "extra_forbidden" and len(entry["loc"]) == 1:
            keys = [field.alias or name for name, field in cls.model_fields.items()]
            message = f"is not a key here: use {', '.join(keys)}"
            if (instead := cls.GONE.get(str(entry["loc"][0]))) is not None:
                message = f"is gone: {instead}"
            for own, other in cls._other_words():
                if entry["loc"] == (other,):
                    message = f"and {own!r} are the same: write one of them"
        error = PydanticCustomError(entry["type"], "{message}", {"message": message})
        return InitErrorDetails(type=error, loc=entry["loc"], input=entry["input"])


def named_in(entry: ErrorDetails) -> list[str]:
    """Return the names of the fields around an error of pydantic, outermost first."""
    is_unknown = entry["type"] in _UNKNOWN
    place = entry["loc"][:-1] if is_unknown else entry["loc"]
    return [each for each in place if isinstance(each, str) and each not in _SORTS]


def in_words(entry: ErrorDetails, named: str) -> str:
    """Return an error of pydantic as a sentence about what is `named`.

    If an unknown key or kind stands in something without a name, `named` is empty.
    """
    message = entry["msg"].removeprefix("Value error, ").removeprefix("Input ")
    shown = truncate(repr(entry["input"]), _SHOWN)
    match entry["type"], entry["input"]:
        case "missing", _:
            return f"{named} is missing"
        case "extra_forbidden", _:
            inside = f"{entry['loc'][-1]!r} {message}"
        case "unexpected_keyword_argument", _:
            inside = f"{entry['loc'][-1]!r} is not a key here"
        case "union_tag_invalid", {"kind": kind}:
            kinds = message.partition("expected tags: ")[2]
            inside = f"the kind {kind!r} is unknown: use one of {kinds}"
        case "union_tag_not_found", _:
            inside = "'kind' is missing"
        case "model_type" | "dataclass_type" | "model_attributes_type", _:
            return f"{named} should be a mapping, not {shown}"
        case _ if message.startswith("should"):
            return f"{named} {message}, not {shown}"
        case _:
            return f"{named}: {message}"
    return f"{named}: {inside}" if named else inside

"""What a mapping in a YAML document is read by, and what it says when something else stands there.

Nothing is converted: a number in quotes is a text, here and in the schema that editors use. A fault is
told once, in words about the document, and not once for every type that might have stood there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self, TypeAlias

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

REFERENCE: Final = r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*"
"""`module:name`, in signs that mean the same in the patterns of every language."""


def _sort(value: object) -> str | None:
    """What sort of thing stands here. A union whose members differ in it has one fault, not several."""
    match value:
        case str():
            return "text"
        case Mapping():
            return "mapping"
        case list() | tuple():
            return "list"
        case _:
            return None


def by_sort(what: str) -> Discriminator:
    """Tells the members of a union apart by their tags: `text`, `mapping` and `list`."""
    told = f"should be {what}"
    return Discriminator(_sort, custom_error_type="wrong_sort", custom_error_message=told)


class Written:
    """A mark on a text: it matches a pattern, and should be `what`."""

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
    Text | Annotated[list[str], Tag("list")], by_sort("the name of a node, or a list of names")
]


class Form(BaseModel):
    """A mapping of the document, with these keys and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        form = handler.resolve_ref_schema(handler(schema))
        for own, other in cls._other_words():
            form["properties"][other] = form["properties"][own]
            alone: list[dict[str, Any]] = [{"required": [own]}, {"required": [other]}]
            if own in form.get("required", ()):
                form["required"].remove(own)
                form["oneOf"] = alone
            else:
                form["not"] = {"required": [own, other]}
        return form

    @classmethod
    def _other_words(cls) -> list[tuple[str, str]]:
        """Keys that may also be written in another word, with that word."""
        choices = [field.validation_alias for field in cls.model_fields.values()]
        words = [each.choices for each in choices if isinstance(each, AliasChoices)]
        return [(str(own), str(other)) for own, other in words]

    @model_validator(mode="wrap")
    @classmethod
    def _tell_what_there_is(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(given)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False)
            details = [cls._retold(entry) for entry in faults]
            raise ValidationError.from_exception_data(error.title, details) from None

    @classmethod
    def _retold(cls, entry: ErrorDetails) -> InitErrorDetails:
        told = entry["msg"]
        if entry["type"] == "extra_forbidden" and len(entry["loc"]) == 1:
            known = [field.alias or name for name, field in cls.model_fields.items()]
            told = f"is no key that may stand here; there are {', '.join(known)}"
            for own, other in cls._other_words():
                if entry["loc"] == (other,):
                    told = f"and {own!r} are one thing: write one of them"
        error = PydanticCustomError(entry["type"], "{told}", {"told": told})
        return InitErrorDetails(type=error, loc=entry["loc"], input=entry["input"])

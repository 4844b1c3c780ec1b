"""Choices in a form: an Enum or a Literal as strings, and their values."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema, to_jsonable_python

from mcp_django.schema.generation import SchemaGenerator

FormField = tuple[dict[str, Any], dict[str, Any] | None]
"""Property of a form, and the values of its choices unless they equal the strings."""


class FormSchemaGenerator(SchemaGenerator):
    """Schema generator that describes Enums with titles by `oneOf`."""

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> Any:
        """Return the default, or the result of a default factory if it is a list.

        A list cannot be a default without a factory.
        """
        default = super().get_default_value(schema)
        factory = schema.get("default_factory")
        if factory is None or schema.get("default_factory_takes_data"):
            return default
        value = cast(Callable[[], Any], factory)()
        return value if isinstance(value, list | tuple) else default

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        described = super().enum_schema(schema)
        described.pop("description", None)
        members = [member for member in schema["members"] if isinstance(member, Enum)]
        titles = [_find_title(member) for member in members]
        if any(title is not None for title in titles):
            values = [to_jsonable_python(member.value) for member in members]
            described.pop("enum", None)
            described.pop("const", None)
            described["oneOf"] = [
                {"const": value, "title": title or str(value)} for value, title in zip(values, titles, strict=True)
            ]
        return described


def _find_title(member: Enum) -> str | None:
    """Return the title of a member for users, or None.

    It is the `label` of Django's choices, else the name if it differs from the value.
    """
    label = getattr(member, "label", None)
    if label is not None:
        return str(label)
    if str(member.value).casefold() == member.name.casefold():
        return None
    return member.name.replace("_", " ").capitalize()


@dataclass(frozen=True, slots=True)
class Choice:
    """Values to choose from, with or without titles."""

    values: list[Any]
    titles: list[str] | None

    def build_single_field(self, texts: dict[str, Any], default: Any) -> FormField:
        """Return the property for a single choice."""
        field = {"type": "string", **texts, **self._build_options("oneOf")}
        if default is not None:
            field["default"] = _to_text(default)
        return field, self._build_decoder()

    def build_multiple_field(self, texts: dict[str, Any], default: Any) -> FormField:
        """Return the property for a multiple choice."""
        items = self._build_options("anyOf")
        field = {"type": "array", **texts, "items": items if self.titles else {"type": "string", **items}}
        if isinstance(default, list):
            field["default"] = [_to_text(item) for item in default]
        return field, self._build_decoder()

    def _build_options(self, keyword: str) -> dict[str, Any]:
        names = [_to_text(value) for value in self.values]
        if self.titles is None:
            return {"enum": names}
        return {keyword: [{"const": n, "title": t} for n, t in zip(names, self.titles, strict=True)]}

    def _build_decoder(self) -> dict[str, Any] | None:
        if all(isinstance(value, str) for value in self.values):
            return None
        return {_to_text(value): value for value in self.values}


def find_choice(schema: dict[str, Any]) -> Choice | None:
    """Return the choice of an enum, a const or a `oneOf` of consts, else None."""
    if isinstance(schema.get("oneOf"), list) and all("const" in option for option in schema["oneOf"]):
        options = schema["oneOf"]
        return Choice([option["const"] for option in options], [str(option.get("title", "")) for option in options])
    if "enum" in schema:
        return Choice([value for value in schema["enum"] if value is not None], None)
    return Choice([schema["const"]], None) if "const" in schema else None


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)

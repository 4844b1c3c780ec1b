"""Forms of elicitation: the restricted schema of a type, and its conversion.

A form is flat: strings, numbers, booleans and choices (elicitation, requestedSchema). The form is built for the newest
revision, with titles and multiple choice. Older revisions remove unsupported fields.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from pydantic import ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema, to_jsonable_python

from mcp_django.schema.conversion import build_argument_error, build_converter, compile_fields
from mcp_django.schema.custom_schema import check_schema
from mcp_django.schema.functions.callables import parse_docstring
from mcp_django.schema.generation import CompiledType, SchemaGenerator, cache_by_type, compile_type, describe_type
from mcp_django.schema.validation.validation import ArgumentError, DeclarationError, SchemaChecker

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
    if isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


VALUE_FIELD = "value"
"""Name of the one property of a form that requests a single value."""
_FORMATS = ("date", "date-time", "email", "uri")
_FIELD_KEYWORDS = {
    "string": ("minLength", "maxLength", "default"),
    "integer": ("minimum", "maximum", "default"),
    "number": ("minimum", "maximum", "default"),
    "boolean": ("default",),
}


class ElicitationForm:
    """The schema of an elicitation, and the conversion of its content."""

    __slots__ = ("_checker", "_convert", "_decode", "_nullable", "schema")

    def __init__(
        self,
        schema: dict[str, Any],
        convert: Callable[[dict[str, Any]], Any],
        decode: dict[str, dict[str, Any]] | None = None,
        nullable: frozenset[str] = frozenset(),
    ) -> None:
        self.schema = schema
        """Restricted JSON Schema that a client shows. Must not be changed."""
        self._checker = SchemaChecker(schema)
        self._convert = convert
        self._decode = decode or {}
        self._nullable = nullable

    def read(self, content: dict[str, Any] | None) -> Any:
        """Convert the content of an accepted elicitation to its value.

        Unknown fields are ignored. Empty fields (null) count as absent.

        Raises:
            ValueError: names the field and the violated rule.
        """
        if content is not None and not isinstance(content, dict):
            raise ArgumentError("the content of a form must be an object")
        known = self.schema["properties"]
        given = {name: value for name, value in (content or {}).items() if name in known and value is not None}

        if not self._checker.is_valid(given):
            raise ArgumentError(self._checker.describe_problems(given, "field"))
        for name, meaning in self._decode.items():
            if name in given:
                given[name] = _decode_choice(given[name], meaning)
        for name in self._nullable - given.keys():
            given[name] = None

        try:
            return self._convert(given)
        except ValidationError as error:
            raise build_argument_error(error, given, "field") from None


def build_form(type_: Any) -> ElicitationForm:
    """Compile a type to a form.

    None requests only consent. A bool, str, number, date, Literal, Enum or list of choices requests one value. A
    dataclass, TypedDict, pydantic model or Struct requests its fields. A dict is a custom restricted schema, whose
    content is checked and returned unchanged.

    Raises:
        DeclarationError: when the type does not fit a flat form.
    """
    if isinstance(type_, dict):
        return _build_custom_form(type_)
    return _compile_form(type_)


@cache_by_type
def _compile_form(type_: Any) -> ElicitationForm:
    if type_ is None or type_ is type(None):
        return ElicitationForm({"type": "object", "properties": {}}, lambda content: None)
    where = f"form {describe_type(type_)}"
    compiled = compile_type(type_, where, generator=FormSchemaGenerator)
    described = _find_object_schema(compiled)
    if described is not None:
        return _build_form(compiled, described, parse_docstring(type_.__doc__ or "").parameters, where, unwrap=False)
    single = compile_fields({VALUE_FIELD: type_}, where=where, generator=FormSchemaGenerator)
    return _build_form(single, single.schema, {}, where, unwrap=True)


def _find_object_schema(compiled: CompiledType) -> dict[str, Any] | None:
    """Return the schema of a type with fields, else None."""
    described = compiled.schema
    if "$ref" in described:
        definitions = described.get("$defs", {})
        described = {**definitions.get(described["$ref"].removeprefix("#/$defs/"), {}), "$defs": definitions}
    return described if described.get("type") == "object" and "properties" in described else None


def _build_form(
    compiled: CompiledType, described: dict[str, Any], descriptions: dict[str, str], where: str, *, unwrap: bool
) -> ElicitationForm:
    definitions = described.get("$defs", {})
    properties: dict[str, Any] = {}
    decode: dict[str, dict[str, Any]] = {}
    nullable: set[str] = set()

    for name, inner in described.get("properties", {}).items():
        schema, may_be_null = _remove_null(inner, definitions)
        if may_be_null:
            nullable.add(name)
        field, meaning = _build_field(schema, definitions, f"{where}: field '{name}'")
        if name in descriptions:
            field.setdefault("description", descriptions[name])
        properties[name] = field
        if meaning is not None:
            decode[name] = meaning

    required = described.get("required", [])
    schema = {"type": "object", "properties": properties}
    if must := [name for name in required if name not in nullable]:
        schema["required"] = must

    convert = build_converter(compiled)

    def convert_value(given: dict[str, Any]) -> Any:
        return convert(given)[VALUE_FIELD]

    required_nullable = frozenset(nullable.intersection(required))
    return ElicitationForm(schema, convert_value if unwrap else convert, decode, required_nullable)


def _build_field(
    schema: dict[str, Any], definitions: dict[str, Any], where: str
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Build one property of a form.

    Returns it with the values of its choices, or None where the values equal the choices.
    """
    texts: dict[str, Any] = {key: schema[key] for key in ("title", "description") if key in schema}
    _check_not_secret(schema, where)

    choice = find_choice(schema)
    if choice is not None:
        return choice.build_single_field(texts, schema.get("default"))
    kind = schema.get("type")
    if kind == "array" and isinstance(schema.get("items"), dict):
        choice = find_choice(_remove_null(schema["items"], definitions)[0])
        if choice is not None:
            limits: dict[str, Any] = {key: schema[key] for key in ("minItems", "maxItems") if key in schema}
            return choice.build_multiple_field({**texts, **limits}, schema.get("default"))
    if kind not in _FIELD_KEYWORDS:
        raise DeclarationError(
            f"{where} does not fit a form, which holds strings, numbers, booleans, choices and lists of choices; "
            "split it into several forms"
        )

    field: dict[str, Any] = {
        "type": kind,
        **texts,
        **{key: schema[key] for key in _FIELD_KEYWORDS[kind] if schema.get(key) is not None},
    }
    if schema.get("format") in _FORMATS:
        field["format"] = schema["format"]
    _add_inclusive_bounds(field, schema)
    return field, None


def _add_inclusive_bounds(field: dict[str, Any], schema: dict[str, Any]) -> None:
    """Convert exclusive bounds to inclusive ones, the only ones in forms.

    For numbers, the excluded bound is rejected when the content is read.
    """
    step = 1 if field["type"] == "integer" else 0
    if "exclusiveMinimum" in schema:
        field["minimum"] = schema["exclusiveMinimum"] + step
    if "exclusiveMaximum" in schema:
        field["maximum"] = schema["exclusiveMaximum"] - step


def _remove_null(schema: dict[str, Any], definitions: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Resolve a property's reference and remove null.

    Returns the schema, and True if null was allowed.
    """
    branches = schema.get("anyOf")
    if isinstance(branches, list):
        rest = [branch for branch in branches if branch.get("type") != "null"]
        # A decimal is a number or a string; a form requests the number.
        numbers = [branch for branch in rest if branch.get("type") == "number"]
        if len(rest) == 1 or (len(rest) == 2 and numbers):
            around = {key: value for key, value in schema.items() if key != "anyOf"}
            inner, _ = _remove_null((numbers or rest)[0], definitions)
            return {**inner, **around}, len(rest) < len(branches)
    if "$ref" in schema:
        target = definitions.get(schema["$ref"].removeprefix("#/$defs/"), {})
        return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}, False
    return schema, False


def _check_not_secret(schema: dict[str, Any], where: str) -> None:
    if schema.get("format") == "password" or schema.get("writeOnly"):
        raise DeclarationError(
            f"{where} requests a secret, which must not pass through the client (client/elicitation); request it on a "
            "page of your site, with ctx.elicit_url"
        )


def _decode_choice(value: Any, meaning: dict[str, Any]) -> Any:
    return [meaning[item] for item in value] if isinstance(value, list) else meaning[value]


def _build_custom_form(schema: dict[str, Any]) -> ElicitationForm:
    schema = {"properties": {}, **schema}
    check_schema(schema, "form")
    for name, field in schema["properties"].items():
        if not _is_form_field(field):
            raise DeclarationError(
                f"form: property '{name}' must be a string, number, integer, boolean, or an array of choices"
            )
        _check_not_secret(field, f"form: property '{name}'")
    return ElicitationForm(schema, lambda content: content)


def _is_form_field(field: Any) -> bool:
    if not isinstance(field, dict) or field.get("type") != "array":
        return isinstance(field, dict) and field.get("type") in _FIELD_KEYWORDS
    items = field.get("items")
    return isinstance(items, dict) and ("enum" in items or "anyOf" in items)

"""JSON Schema 2020-12 and validators for types, by pydantic with project rules.

Titles that pydantic generates from names are removed. Decimals are described by patterns that run in linear time.
Integers are exact and fit 64 bits: JSON decoders turn larger ones into floats, which pydantic would convert to another
integer.
"""

from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, SchemaError, SchemaValidator, core_schema, to_jsonable_python

from mcp_django.protocol.display_text import truncate
from mcp_django.schema.annotations import AnnotationAdapter, inline_structs
from mcp_django.schema.jsonable import call_in_default_language
from mcp_django.schema.validation.validation import DeclarationError

T = TypeVar("T")
Mode = Literal["validation", "serialization"]

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
MAX_EXACT_FLOAT = 2**53 - 1
"""Largest magnitude up to which a float with an integral value is certainly exact."""
MAX_TYPE_NAME_CHARACTERS = 120

_DECIMAL_IN = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)$"
# No exponent: int(Decimal("1e999999999")) would take all memory.
_DECIMAL_OUT = r"^-?[0-9]+(\.[0-9]+)?(E[+-]?[0-9]+)?$"

_COLLECTIONS = frozenset({"list", "tuple", "set", "frozenset", "dict"})
_CHOICE = {"enum", "const", "oneOf"}
_NO_SCHEMAS_INSIDE = frozenset({"metadata", "default", "expected", "config", "serialization", "cls"})


class SchemaGenerator(GenerateJsonSchema):
    """pydantic's generator without generated titles."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        described = super().decimal_schema(schema)
        pattern = _DECIMAL_IN if self.mode == "validation" else _DECIMAL_OUT
        for branch in described.get("anyOf", [described]):
            if branch.get("type") == "string" and not schema.get("allow_inf_nan"):
                branch["pattern"] = pattern
        return described

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _remove_title(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        described = _remove_title(super().dataclass_schema(schema), schema["cls"])
        if schema.get("config", {}).get("extra_fields_behavior") == "forbid":
            # Not all pydantic versions mark a plain dataclass as closed when the surrounding type is.
            described.setdefault("additionalProperties", False)
        return described

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _remove_title(super().typed_dict_schema(schema), schema.get("cls"))

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        self._enums.add(schema["cls"].__name__)
        return super().enum_schema(schema)

    def generate(self, schema: CoreSchema, mode: Mode = "validation") -> JsonSchemaValue:
        self._enums: set[str] = set()
        described = super().generate(schema, mode)
        # The title of an enum is added after enum_schema has returned.
        for place in (described, *described.get("$defs", {}).values()):
            if place.get("title") in self._enums and _CHOICE & place.keys():
                del place["title"]
        return described


class CompiledType:
    """A compiled annotation: its schema, its validator and its serializer."""

    def __init__(self, annotation: Any, mode: Mode, generator: type[SchemaGenerator]) -> None:
        """Compile the annotation.

        Raises pydantic's errors; `compile_type` makes them readable.
        """
        adapter = AnnotationAdapter()
        self._adapter: TypeAdapter[Any] = TypeAdapter(adapter.adapt(annotation))
        if not self._adapter.pydantic_complete:
            self._adapter.rebuild(raise_errors=True)
        described = self._adapter.json_schema(mode=mode, by_alias=True, schema_generator=generator)
        # Converts lazy translations, as in Django's models, to plain text.
        plain: dict[str, Any] = to_jsonable_python(described, fallback=str)
        self.schema = inline_structs(plain, adapter.structs)
        """JSON Schema of the input or the output, by alias. Must not be changed."""

    @property
    def serializer(self) -> Any:
        """pydantic's serializer of the annotation."""
        return self._adapter.serializer

    def validator(self) -> SchemaValidator:
        """Return a validator that accepts only integers of 64 bits."""
        return _build_validator(_exact_integers(self._adapter.core_schema))

    def text_validator(self) -> SchemaValidator:
        """Return a validator for values written as text, such as "5" for an integer."""
        return _build_validator(_exact_integers(self._adapter.core_schema, from_text=True))


def compile_type(
    annotation: Any,
    where: str,
    *,
    mode: Mode = "validation",
    generator: type[SchemaGenerator] = SchemaGenerator,
) -> CompiledType:
    """Compile an annotation for input ("validation") or output ("serialization").

    Raises:
        DeclarationError: when it has no JSON form; the text starts with `where`.
    """
    try:
        return CompiledType(annotation, mode, generator)
    except DeclarationError as error:
        raise DeclarationError(f"{where}: {error}") from error
    except PydanticUndefinedAnnotation as error:
        raise DeclarationError(
            f"{where}: the type {describe_type(annotation)} refers to {error.name!r}, which cannot be resolved; "
            "define it at module level, outside 'if TYPE_CHECKING:'"
        ) from error
    except (PydanticUserError, SchemaError, TypeError, NameError, AttributeError) as error:
        first_line = str(error).split("\n", 1)[0]
        raise DeclarationError(
            f"{where}: the type {describe_type(annotation)} has no JSON form; use JSON types, a dataclass, TypedDict, "
            f"pydantic model or msgspec.Struct ({first_line})"
        ) from error


def cache_by_type(compile_: Callable[[Any], T]) -> Callable[[Any], T]:
    """Decorate a function of a type, so that it runs once for each type, in the default language.

    Handlers request the same types at run time again and again.
    """
    compile_cached = lru_cache(maxsize=256)(partial(call_in_default_language, compile_))

    @wraps(compile_)
    def find_or_compile(type_: Any) -> T:
        try:
            hash(type_)
        except TypeError:
            # For example a type annotated with a Field.
            return call_in_default_language(compile_, type_)
        return compile_cached(type_)

    return find_or_compile


def describe_type(annotation: Any) -> str:
    """Return a short name of a type for messages."""
    name = annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
    return truncate(name, MAX_TYPE_NAME_CHARACTERS)


def _build_validator(schema: CoreSchema) -> SchemaValidator:
    try:
        # Prebuilt validators of model classes would restore pydantic's own integers.
        return SchemaValidator(schema, _use_prebuilt=False)
    except TypeError:
        # A pydantic version without this switch: integers inside models follow pydantic's rules.
        return SchemaValidator(schema)


def _remove_title(schema: JsonSchemaValue, cls: Any) -> JsonSchemaValue:
    if schema.get("title") == getattr(cls, "__name__", None):
        schema.pop("title", None)
    return schema


def _exact_integers(schema: Any, *, from_text: bool = False) -> Any:
    """Replace each integer in a core schema by an exact one of 64 bits.

    Collections stop at their first error.
    """
    if isinstance(schema, list | tuple):
        return type(schema)(_exact_integers(item, from_text=from_text) for item in schema)
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if kind == "int":
        bounded = _bound_integer(schema)
        return bounded if from_text else _exact_integer(bounded)

    is_schema = isinstance(kind, str)
    exact = {
        # The keys of an object are text.
        key: _exact_integers(value, from_text=from_text or key == "keys_schema")
        if not is_schema or key not in _NO_SCHEMAS_INSIDE
        else value
        for key, value in schema.items()
    }

    if kind in _COLLECTIONS:
        # The first error is enough: collecting a million errors of one argument would take seconds.
        exact["fail_fast"] = True
    return exact


def _bound_integer(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "ge": max(schema.get("ge", INT_MIN), INT_MIN), "le": min(schema.get("le", INT_MAX), INT_MAX)}


def _exact_integer(schema: dict[str, Any]) -> CoreSchema:
    rules: Any = {key: value for key, value in schema.items() if key not in ("strict", "ref", "serialization")}
    whole = {**rules, "strict": True}
    as_float = core_schema.float_schema(strict=True, ge=-MAX_EXACT_FLOAT, le=MAX_EXACT_FLOAT)
    exact: Any = core_schema.union_schema(
        [whole, core_schema.chain_schema([as_float, rules])],
        mode="left_to_right",
        custom_error_type="exact_integer",
        custom_error_message="must be an exact integer of at most 64 bits",
    )
    return {**exact, "ref": schema["ref"]} if "ref" in schema else exact

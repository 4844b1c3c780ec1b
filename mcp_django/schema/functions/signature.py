"""Tool input: the schema of a handler's signature, its validation and conversion.

All preparation happens once, when the handler is registered. A call runs two compiled functions.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, NotRequired, Optional, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import Field, FieldInfo

from mcp_django.protocol.headers import HeaderParam
from mcp_django.schema.conversion import Converter, build_argument_error, build_converter, compile_fields
from mcp_django.schema.custom_schema import HEADER_KEYWORD, check_schema, find_header_params
from mcp_django.schema.functions.callables import (
    MISSING,
    CallableParameter,
    CallableSignature,
    describe_callable,
    inspect_callable,
)
from mcp_django.schema.generation import MAX_EXACT_FLOAT
from mcp_django.schema.jsonable import to_json
from mcp_django.schema.validation.messages import describe_unknown
from mcp_django.schema.validation.validation import MAX_PROBLEMS, ArgumentError, DeclarationError, SchemaChecker

InjectionPredicate = Callable[[Any], bool]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CompiledParameters:
    """The compiled parameters of a handler."""

    schema: dict[str, Any]
    """JSON Schema for clients; its root is an object. Must not be changed."""
    header_params: tuple[HeaderParam, ...]
    """Arguments that are mirrored into request headers."""
    injected: dict[str, Any]
    """Parameter name to resolved annotation, for values that the server injects."""
    _checker: SchemaChecker
    _is_valid: Callable[[Any], bool]
    _convert: Converter

    def check(self, arguments: dict[str, Any]) -> None:
        """Check JSON arguments against the schema.

        Raises:
            ArgumentError: names up to five problems.
        """
        if not self._is_valid(arguments):
            raise ArgumentError(self._checker.describe_problems(arguments))

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert checked JSON arguments to keyword arguments of the annotated types.

        Returns a new dict without the missing arguments, so that the handler's own defaults apply.

        Raises:
            ArgumentError: for values that the schema cannot exclude, such as a date that does not exist, or an
                integer beyond 64 bits.
        """
        try:
            converted: dict[str, Any] = self._convert(arguments)
        except ValidationError as error:
            raise build_argument_error(error, arguments) from None
        return converted


def compile_parameters(
    fn: Callable[..., Any],
    *,
    is_injected: InjectionPredicate,
    input_schema: dict[str, Any] | None = None,
    skip: Container[str] = (),
) -> CompiledParameters:
    """Compile the parameters of a function, method, partial or callable object.

    `is_injected` receives each annotation (also the `X` of `X | None`) and each default, and returns True if the server
    injects the value. Names in `skip` are left out. A custom `input_schema` is used unchanged; `**kwargs` then accepts
    each property without a parameter.

    Raises:
        DeclarationError: when the signature or the schema is not supported.
    """
    shape = inspect_callable(fn, skip=skip)
    injected, arguments = split_injected(shape, is_injected, skip)

    if input_schema is None:
        if shape.takes_kwargs:
            raise DeclarationError(
                f"{shape.name}() takes **kwargs, which no schema describes; declare the parameters or give input_schema"
            )
        schema, convert = _build_schema(shape, arguments, describe_callable(fn).parameters)
        checker = check_schema(schema, f"{shape.name}()")
    else:
        schema = input_schema
        checker = check_schema(schema, f"{shape.name}(): input_schema")
        convert = _build_custom_converter(shape, arguments, schema)

    return CompiledParameters(
        schema=schema,
        header_params=find_header_params(schema, f"{shape.name}()"),
        injected=injected,
        _checker=checker,
        _is_valid=checker.is_valid,
        _convert=convert,
    )


def split_injected(
    shape: CallableSignature, is_injected: InjectionPredicate, skip: Container[str] = ()
) -> tuple[dict[str, Any], dict[str, CallableParameter]]:
    """Split a callable's parameters into injected and given ones.

    Returns the annotations of the injected ones by name, and the other parameters.
    """
    arguments = {name: argument for name, argument in shape.parameters.items() if name not in skip}
    injected = find_injected(arguments, is_injected)
    return injected, {name: argument for name, argument in arguments.items() if name not in injected}


def find_injected(arguments: Mapping[str, CallableParameter], is_injected: InjectionPredicate) -> dict[str, Any]:
    """Return the injected parameters by name, with the annotation that marks them.

    A mark given as the default, as in `user: User = Depends(owner)`, moves into the annotation, because clients could
    replace a default.
    """
    injected: dict[str, Any] = {}
    for name, argument in arguments.items():
        annotation = next(
            (a for a in _find_alternatives(argument.annotation) if a is not Any and is_injected(a)), MISSING
        )
        if annotation is MISSING and not argument.is_required and is_injected(argument.default):
            annotation = Annotated[argument.annotation, argument.default]
        if annotation is not MISSING:
            injected[name] = annotation
    return injected


def build_field(argument: CallableParameter) -> Any:
    """Convert a parameter to a TypedDict field.

    A default makes it optional, and None as the default makes it nullable.
    """
    annotation, default = argument.annotation, argument.default
    inner, metadata = _split_annotated(annotation)
    described = any(isinstance(item, FieldInfo) and item.description for item in metadata)
    text = next((item for item in metadata if isinstance(item, str)), None)
    if text is not None and not described:
        metadata = (*metadata, Field(description=text))

    if isinstance(default, FieldInfo):
        return Annotated[(inner, *metadata, default)]
    if default is None and inner is not Any:
        inner = Optional[inner]  # noqa: UP045 - the type is known only here
    annotation = Annotated[(inner, *metadata)] if metadata else inner
    return annotation if argument.is_required else NotRequired[annotation]


def _build_schema(
    shape: CallableSignature, arguments: dict[str, CallableParameter], descriptions: dict[str, str]
) -> tuple[dict[str, Any], Converter]:
    compiled = compile_fields(
        {name: build_field(argument) for name, argument in arguments.items()}, where=f"{shape.name}()"
    )
    generated = compiled.schema
    schema: dict[str, Any] = {"type": "object", "properties": dict(generated.get("properties", {}))}
    for key in ("required", "additionalProperties", "$defs"):
        if key in generated:
            schema[key] = generated[key]

    for argument, name in zip(arguments.values(), schema["properties"], strict=True):
        schema["properties"][name] = _build_property(
            schema["properties"][name], argument, descriptions.get(argument.name), schema.get("$defs", {})
        )
    return schema, build_converter(compiled)


def _build_property(
    schema: dict[str, Any], argument: CallableParameter, description: str | None, definitions: dict[str, Any]
) -> dict[str, Any]:
    schema = {"description": description, **schema} if description else dict(schema)
    if argument.default is not MISSING and not isinstance(argument.default, FieldInfo):
        _add_default(schema, argument.default, definitions)
    return _simplify_for_header(schema, definitions) if HEADER_KEYWORD in schema else schema


def _add_default(schema: dict[str, Any], default: Any, definitions: dict[str, Any]) -> None:
    """Add the default to the schema if a caller could give it too.

    Sentinels are left out.
    """
    try:
        value = to_json(default)
    except TypeError:
        return
    if SchemaChecker({**schema, "$defs": definitions}).is_valid(value):
        schema["default"] = value


def _simplify_for_header(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Simplify a property that is mirrored into a header to one plain type.

    A missing header means null.
    """
    branches = schema.get("anyOf")
    if isinstance(branches, list) and {"type": "null"} in branches and len(branches) == 2:
        inner = next(branch for branch in branches if branch != {"type": "null"})
        schema = {**inner, **{key: value for key, value in schema.items() if key != "anyOf"}}
        if schema.get("default", "") is None:
            del schema["default"]

    if "$ref" in schema:
        target = definitions.get(schema.pop("$ref").removeprefix("#/$defs/"), {})
        schema = {**target, **schema}
    if schema.get("type") == "integer":
        schema.setdefault("minimum", -MAX_EXACT_FLOAT)
        schema.setdefault("maximum", MAX_EXACT_FLOAT)
    return schema


def _build_custom_converter(
    shape: CallableSignature, arguments: dict[str, CallableParameter], schema: dict[str, Any]
) -> Converter:
    fields = {name: build_field(argument) for name, argument in arguments.items()}
    compiled = compile_fields(fields, where=f"{shape.name}()", open_ended=shape.takes_kwargs)
    parameters, described = compiled.schema.get("properties", {}), schema.get("properties", {})
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        for name in compiled.schema.get("required", ()):
            if name not in described:
                raise DeclarationError(
                    f"{shape.name}(): parameter '{name}' has no default and no property in input_schema; "
                    "describe it there or give it a default"
                )

    convert = build_converter(compiled)
    if shape.takes_kwargs:
        return convert
    for name in described:
        if name not in parameters:
            raise DeclarationError(
                f"{shape.name}(): input_schema has the property '{name}', which no parameter takes; "
                "add the parameter or **kwargs"
            )
    return _reject_unknown_names(convert, frozenset(parameters))


def _reject_unknown_names(convert: Converter, names: frozenset[str]) -> Converter:
    """Reject names without a parameter.

    pydantic would create an error for each of them.
    """

    def convert_known(arguments: Any) -> Any:
        if isinstance(arguments, dict) and (surplus := arguments.keys() - names):
            raise ArgumentError(
                "; ".join(describe_unknown(name, names, "argument") for name in sorted(surplus)[:MAX_PROBLEMS])
            )
        return convert(arguments)

    return convert_known


def _split_annotated(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(annotation) is Annotated:
        return annotation.__origin__, tuple(annotation.__metadata__)
    return annotation, ()


def _find_alternatives(annotation: Any) -> list[Any]:
    """Return the annotation, its type without `Annotated`, and the X of `X | None`."""
    inner, _ = _split_annotated(annotation)
    found = [annotation] if inner is annotation else [annotation, inner]
    if get_origin(inner) in (Union, UnionType):
        members = [member for member in get_args(inner) if member is not type(None)]
        if len(members) == 1:
            found += _find_alternatives(members[0])
    return found

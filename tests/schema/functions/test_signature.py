"""Signatures as input schemas: the parameters and their descriptions."""

import enum
import functools
from dataclasses import dataclass, field
from typing import Annotated, Any, Optional

import pytest
from pydantic import Field

from mcp_django.schema import ArgumentError, CompiledParameters, DeclarationError, compile_parameters


class Context:
    pass


def is_injected(annotation: Any) -> bool:
    return annotation is Context


def compile_function(fn: Any, **options: Any) -> CompiledParameters:
    return compile_parameters(fn, is_injected=is_injected, **options)


def call_function(parameters: CompiledParameters, **arguments: Any) -> dict[str, Any]:
    parameters.check(arguments)
    return parameters.convert(arguments)


def refusal(parameters: CompiledParameters, **arguments: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        call_function(parameters, **arguments)
    return str(caught.value)


def test_a_function_becomes_a_closed_object_with_its_required_parameters() -> None:
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert compile_function(add).schema == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters_has_an_empty_object() -> None:
    def ping() -> None: ...

    parameters = compile_function(ping)
    assert parameters.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert call_function(parameters) == {}
    assert refusal(parameters, a=1) == "unknown argument 'a'"


def test_descriptions_come_from_the_docstring_unless_the_field_has_one() -> None:
    def near(lat: float, lon: Annotated[float, Field(description="East")], alt: Annotated[int, "Up"] = 0) -> None:
        """Find.

        Args:
            lat: Degrees
                north.
            lon: Degrees east.
        """

    properties = compile_function(near).schema["properties"]
    assert [properties[name]["description"] for name in ("lat", "lon", "alt")] == ["Degrees north.", "East", "Up"]


def test_generated_titles_are_removed_and_others_kept() -> None:
    @dataclass
    class Place:
        name: str

    def visit(place: Place, note: Annotated[str, Field(title="Note")]) -> None: ...

    schema = compile_function(visit).schema
    assert "title" not in schema["$defs"]["Place"]
    assert "title" not in schema["$defs"]["Place"]["properties"]["name"]
    assert schema["properties"]["note"]["title"] == "Note"


def test_injected_parameters_are_listed_and_not_described() -> None:
    def tool(
        ctx: Context,
        a: int,
        other: Context | None = None,
        third: Context | None = None,
    ) -> None: ...

    parameters = compile_function(tool)
    assert list(parameters.schema["properties"]) == ["a"]
    assert parameters.injected == {"ctx": Context, "other": Context, "third": Context}
    assert refusal(parameters, a=1, ctx=2) == "unknown argument 'ctx'"


def test_injection_metadata_inside_annotated_is_passed_unchanged() -> None:
    mark = object()
    wanted = Annotated[str, mark]

    def tool(shop: wanted) -> None: ...  # type: ignore[valid-type]

    parameters = compile_parameters(tool, is_injected=lambda a: mark in getattr(a, "__metadata__", ()))
    assert parameters.injected == {"shop": wanted}
    assert parameters.schema["properties"] == {}


def test_skipped_names_are_neither_described_nor_injected() -> None:
    def tool(a: int, code: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    parameters = compile_function(tool, skip={"code"})
    assert list(parameters.schema["properties"]) == ["a"]
    assert parameters.injected == {}


def test_a_parameter_that_may_be_none_accepts_null(subtests: pytest.Subtests) -> None:
    for annotation in [Optional[int], int | None]:  # noqa: UP045 - both spellings
        with subtests.test(annotation=annotation):

            def tool(limit: Any = None) -> None: ...

            tool.__annotations__["limit"] = annotation
            parameters = compile_function(tool)
            assert parameters.schema["properties"]["limit"] == {
                "anyOf": [{"type": "integer"}, {"type": "null"}],
                "default": None,
            }
            assert call_function(parameters, limit=None) == {"limit": None}
            assert call_function(parameters) == {}


def test_none_as_default_makes_a_parameter_nullable() -> None:
    def tool(limit: Annotated[int, Field(ge=1)] = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    parameters = compile_function(tool)
    assert call_function(parameters, limit=None) == {"limit": None}
    assert refusal(parameters, limit=0) == "limit: 0 is less than the minimum of 1"


def test_an_absent_argument_uses_the_default_of_the_function() -> None:
    def tool(a: int = 1, b: list[int] = [2]) -> None: ...  # noqa: B006

    parameters = compile_function(tool)
    assert call_function(parameters, a=5) == {"a": 5}
    assert parameters.schema["properties"]["b"]["default"] == [2]


def test_a_default_without_json_form_is_not_in_the_schema() -> None:
    def tool(a: int = object(), b: int = "five", c: Any = print) -> None: ...  # type: ignore[assignment]

    assert not any("default" in entry for entry in compile_function(tool).schema["properties"].values())


def test_a_field_as_default_has_rules_description_and_default() -> None:
    def tool(
        limit: int = Field(5, ge=1, description="How many"),
        tags: list[str] = Field(default_factory=list),  # noqa: B008
        q: str = Field(),
    ) -> None: ...

    parameters = compile_function(tool)
    assert parameters.schema["properties"]["limit"] == {
        "type": "integer",
        "minimum": 1,
        "default": 5,
        "description": "How many",
    }
    assert parameters.schema["required"] == ["q"]
    assert call_function(parameters, q="x") == {"limit": 5, "tags": [], "q": "x"}


def test_the_alias_is_the_name_for_callers() -> None:
    def tool(page_size: Annotated[int, Field(alias="pageSize")] = 5) -> None:
        """Page.

        Args:
            page_size: Rows.
        """

    parameters = compile_function(tool)
    assert parameters.schema["properties"] == {"pageSize": {"type": "integer", "default": 5, "description": "Rows."}}
    assert call_function(parameters, pageSize=7) == {"page_size": 7}


def test_a_parameter_without_annotation_accepts_any_value() -> None:
    def tool(value) -> None: ...  # type: ignore[no-untyped-def]

    assert call_function(compile_function(tool), value={"a": [None]}) == {"value": {"a": [None]}}


def test_methods_partials_classes_and_callable_objects_have_signatures() -> None:
    class Service:
        """Serve."""

        def method(self, a: int) -> None: ...

        @classmethod
        def of_class(cls, a: int) -> None: ...

        @staticmethod
        def static(a: int) -> None: ...

        def __call__(self, a: int) -> None: ...

    class Made:
        def __init__(self, a: int) -> None: ...

    def two(b: str, a: int) -> None: ...

    handlers = [Service().method, Service.of_class, Service.static, Service(), Made, functools.partial(two, "x")]
    assert [compile_function(fn).schema["properties"] for fn in handlers] == [{"a": {"type": "integer"}}] * len(
        handlers
    )


def test_arguments_bound_by_a_partial_cannot_be_overridden() -> None:
    def tool(a: int, user: str = "anonymous") -> None: ...

    parameters = compile_function(functools.partial(tool, user="admin"))
    assert list(parameters.schema["properties"]) == ["a"]


def test_a_decorated_function_keeps_its_signature() -> None:
    def logged(fn: Any) -> Any:
        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return inner

    @logged
    def tool(a: int) -> None: ...

    assert list(compile_function(tool).schema["properties"]) == ["a"]


def test_variadic_positional_arguments_are_refused() -> None:
    def tool(*values: int) -> None: ...

    with pytest.raises(DeclarationError, match=r"tool\(\) takes \*values, .* one by one"):
        compile_function(tool)


def test_variadic_keyword_arguments_need_a_handwritten_schema() -> None:
    def tool(**values: int) -> None: ...

    with pytest.raises(DeclarationError, match=r"takes \*\*kwargs.*give input_schema"):
        compile_function(tool)


def test_positional_only_is_refused() -> None:
    def tool(a: int, /) -> None: ...

    with pytest.raises(DeclarationError, match=r"parameter 'a' is positional-only.*remove the '/'"):
        compile_function(tool)


def test_a_callable_without_a_readable_signature_is_refused() -> None:
    with pytest.raises(DeclarationError, match="has no readable signature; wrap it"):
        compile_function(int)


def test_a_type_without_json_form_is_refused_by_parameter_name() -> None:
    class Socket:
        pass

    def tool(a: int, s: list[Socket]) -> None: ...

    with pytest.raises(DeclarationError, match=r"tool\(\): parameter 's': the type .*Socket.* has no JSON form; use"):
        compile_function(tool)


def test_an_invalid_pattern_is_refused() -> None:
    def tool(a: Annotated[str, Field(pattern="[")]) -> None: ...

    with pytest.raises(DeclarationError, match="parameter 'a'"):
        compile_function(tool)


def test_nested_types_have_their_descriptions_and_refuse_unknown_keys() -> None:
    @dataclass
    class Filter:
        """How to narrow."""

        limit: int = field(default=5)

    def tool(filter: Filter) -> None: ...

    parameters = compile_function(tool)
    assert parameters.schema["$defs"]["Filter"]["description"] == "How to narrow."
    assert refusal(parameters, filter={"limt": 1}) == "filter: unknown key 'limt'; did you mean 'limit'?"


def test_results_of_convert_are_new_objects() -> None:
    def tool(values: list[int]) -> None: ...

    given = {"values": [1]}
    converted = compile_function(tool).convert(given)
    assert converted == given
    assert converted is not given
    assert converted["values"] is not given["values"]


def test_lazy_descriptions_become_text() -> None:
    class Lazy:
        def __str__(self) -> str:
            return "Degrees"

    def tool(a: Annotated[int, Field(description=Lazy())]) -> None: ...  # type: ignore[arg-type]

    assert compile_function(tool).schema["properties"]["a"]["description"] == "Degrees"


def header(name: Any) -> Any:
    return Field(json_schema_extra={"x-mcp-header": name})


def test_a_mirrored_argument_is_found_with_its_path() -> None:
    def tool(region: Annotated[str, header("Region")], dry: Annotated[bool, header("Dry-Run")] = False) -> None: ...

    assert compile_function(tool).header_params == (
        (("dry",), b"mcp-param-dry-run"),
        (("region",), b"mcp-param-region"),
    )


def test_a_mirrored_optional_argument_has_one_plain_type() -> None:
    def tool(region: Annotated[str | None, header("Region")] = None) -> None: ...

    parameters = compile_function(tool)
    assert parameters.schema["properties"]["region"] == {"type": "string", "x-mcp-header": "Region"}
    assert call_function(parameters) == {}


def test_a_mirrored_choice_is_described_in_place() -> None:
    class Zone(enum.Enum):
        NORTH = "north"

    def tool(zone: Annotated[Zone, header("Zone")] = Zone.NORTH) -> None: ...

    assert compile_function(tool).schema["properties"]["zone"] == {
        "enum": ["north"],
        "type": "string",
        "x-mcp-header": "Zone",
        "default": "north",
    }


def test_a_mirrored_optional_argument_keeps_its_default() -> None:
    def tool(region: Annotated[str | None, header("Region")] = "eu") -> None: ...

    assert compile_function(tool).schema["properties"]["region"]["default"] == "eu"


def test_a_mirrored_integer_is_limited_to_exact_values() -> None:
    def tool(shard: Annotated[int, header("Shard")]) -> None: ...

    assert "shard: " in refusal(compile_function(tool), shard=2**53)


def test_a_mirrored_name_that_is_not_a_token_is_refused(subtests: pytest.Subtests) -> None:
    for name in ["", "two words", "naïve", 5, None, "a:b", "a\n"]:
        with subtests.test(name=name):

            def tool(region: Annotated[str, header(name)]) -> None: ...

            with pytest.raises(DeclarationError, match="'region' must be a header token"):
                compile_function(tool)


def test_mirrored_names_must_differ_in_more_than_case() -> None:
    def tool(a: Annotated[str, header("Region")], b: Annotated[str, header("REGION")]) -> None: ...

    with pytest.raises(DeclarationError, match="must differ in more than case"):
        compile_function(tool)


def test_only_text_integers_and_booleans_are_mirrored(subtests: pytest.Subtests) -> None:
    for annotation in [float, list[str], str | int]:
        with subtests.test(annotation=annotation):

            def tool(a: Any) -> None: ...

            tool.__annotations__["a"] = Annotated[annotation, header("A")]
            with pytest.raises(DeclarationError, match="needs a property of type integer, string or boolean"):
                compile_function(tool)


def test_a_mirrored_field_inside_a_referenced_type_is_refused() -> None:
    @dataclass
    class Place:
        region: Annotated[str, header("Region")]

    def tool(place: Place) -> None: ...

    with pytest.raises(DeclarationError, match="is not on a property reached through 'properties' alone"):
        compile_function(tool)

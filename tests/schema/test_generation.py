"""Every supported type: its JSON values, and the values for the handler."""
# ruff: noqa: UP007, UP045 - the older spellings are supported too

import collections
import datetime as dt
import enum
import sys
import typing
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict, Union

import jsonschema_rs
import msgspec
import pytest
import typing_extensions
from pydantic import BaseModel, Field, RootModel

from mcp_django.schema import ArgumentError, DeclarationError, compile_output, compile_parameters
from mcp_django.schema.generation import compile_type


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: int = 0


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Row(TypedDict):
    id: int
    name: NotRequired[str]


class Sparse(TypedDict, total=False):
    a: int
    b: "typing.Required[Row]"


class Tree(TypedDict):
    value: int
    children: "list[Tree]"


class Extended(typing_extensions.TypedDict):
    row: typing_extensions.ReadOnly[Row]


class Model(BaseModel):
    id: int
    when: dt.date | None = None
    parent: "Model | None" = None


class Names(RootModel[list[str]]):
    pass


class Shape(msgspec.Struct):
    """A shape."""

    sides: int
    inner: "Shape | None" = None
    when: dt.date | None = None


class Tagged(msgspec.Struct, tag="tagged"):
    a: int


U = "12345678-1234-5678-1234-567812345678"

TREE = {"value": 1, "children": [{"value": 2, "children": []}]}

CASES: list[tuple[Any, Any, Any]] = [
    (int, 5, 5),
    (int, 1.0, 1),
    (int, -(2**63), -(2**63)),
    (int, 2**63 - 1, 2**63 - 1),
    (float, 1, 1.0),
    (float, 1.5, 1.5),
    (str, "x", "x"),
    (bool, True, True),
    (None, None, None),
    (Any, {"a": 1}, {"a": 1}),
    (object, [1], [1]),
    (Optional[int], None, None),
    (int | str, "5", "5"),
    (int | str, 5, 5),
    (int | float, 1.5, 1.5),
    (Literal["a", 1], 1, 1),
    (Colour, "blue", Colour.BLUE),
    (Level, 2, Level.HIGH),
    (Annotated[int, Field(ge=1)], 3, 3),
    (list[int], [1, 2.0], [1, 2]),
    (list, [1, "a"], [1, "a"]),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (dict[int, int], {"5": 1}, {5: 1}),
    (dict[str, Any], {"a": None}, {"a": None}),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (set[int], [1, 2], {1, 2}),
    (frozenset[str], ["a"], frozenset({"a"})),
    (collections.deque[int], [1], collections.deque([1])),
    (Point, {"x": 1}, Point(1, 0)),
    (list[Point], [{"x": 1, "y": 2.0}], [Point(1, 2)]),
    (Pair, [1], Pair(1)),
    (Pair, [1, "z"], Pair(1, "z")),
    (Row, {"id": 1}, {"id": 1}),
    (Sparse, {"b": {"id": 1.0}}, {"b": {"id": 1}}),
    (Tree, {"value": 1, "children": [{"value": 2.0, "children": []}]}, TREE),
    (Extended, {"row": {"id": 1}}, {"row": {"id": 1}}),
    (dict[str, Row | None], {"a": {"id": 1}, "b": None}, {"a": {"id": 1}, "b": None}),
    (Model, {"id": 1, "when": "2024-05-01"}, Model(id=1, when=dt.date(2024, 5, 1))),
    (Model, {"id": 1, "parent": {"id": 2}}, Model(id=1, parent=Model(id=2))),
    (Names, ["a"], Names(["a"])),
    (Shape, {"sides": 1.0, "inner": {"sides": 2}}, Shape(1, Shape(2))),
    (list[Shape], [{"sides": 3, "when": "2024-05-01"}], [Shape(3, None, dt.date(2024, 5, 1))]),
    (Optional[Shape], None, None),
    (Tagged, {"type": "tagged", "a": 1}, Tagged(1)),
    (uuid.UUID, U, uuid.UUID(U)),
    (dt.datetime, "2024-05-01T10:00:00Z", dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)),
    (dt.date, "2024-05-01", dt.date(2024, 5, 1)),
    (dt.time, "10:30:00", dt.time(10, 30)),
    (dt.timedelta, "PT1H", dt.timedelta(hours=1)),
    (dt.datetime | str, "2024-05-01T10:00:00", dt.datetime(2024, 5, 1, 10)),  # noqa: DTZ001
    (dt.datetime | str, "tomorrow", "tomorrow"),
    (uuid.UUID | int | str, U, uuid.UUID(U)),
    (Decimal, "1.10", Decimal("1.10")),
    (Decimal, 0.1, Decimal("0.1")),
    (Path, "a/b", Path("a/b")),
    (bytes, "abc", b"abc"),
    (typing.NewType("Id", int), 4, 4),
    (Union[Point, Row], {"id": 3}, {"id": 3}),
]  # fmt: skip


def make_tool(annotation: Any) -> Callable[..., None]:
    def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = annotation
    return tool


def make_returning_tool(annotation: Any) -> Callable[..., None]:
    def tool() -> None: ...

    tool.__annotations__["return"] = annotation
    return tool


def name(value: Any) -> str:
    return str(getattr(value, "__name__", value))


def nothing(annotation: Any) -> bool:
    return False


def test_a_value_is_converted_to_the_annotated_type(subtests: pytest.Subtests) -> None:
    for annotation, given, expected in CASES:
        with subtests.test(annotation=annotation, given=given, expected=expected):
            parameters = compile_parameters(make_tool(annotation), is_injected=nothing)
            parameters.check({"value": given})
            value = parameters.convert({"value": given})["value"]
            assert value == expected
            assert type(value) is type(expected)


def test_generated_schemas_are_valid_in_their_dialect(subtests: pytest.Subtests) -> None:
    for annotation in {str(case[0]): case[0] for case in CASES}.values():
        with subtests.test(annotation=annotation):
            parameters = compile_parameters(make_tool(annotation), is_injected=nothing)
            assert parameters.schema["type"] == "object"
            jsonschema_rs.meta.validate(parameters.schema)
            output = compile_output(make_returning_tool(annotation), is_content=nothing)
            if output is not None:
                assert output.schema["type"] == "object"
                jsonschema_rs.meta.validate(output.schema)


def test_a_converted_value_can_be_returned(subtests: pytest.Subtests) -> None:
    for annotation, given, expected in CASES:
        with subtests.test(annotation=annotation, given=given, expected=expected):
            output = compile_output(make_returning_tool(annotation), is_content=nothing)
            if output is not None:
                structured = output.to_structured(expected)
                jsonschema_rs.validator_for(output.schema).validate(structured)


def test_a_value_of_another_type_is_refused_by_the_schema(subtests: pytest.Subtests) -> None:
    cases = [
        (int, True),
        (int, "5"),
        (int, 1.5),
        (int, None),
        (float, "1.5"),
        (float, False),
        (str, 5),
        (bool, 1),
        (bool, "true"),
        (Literal["a"], "b"),
        (Level, True),
        (list[int], "1"),
        (list[int], {"0": 1}),
        (tuple[int, str], [1]),
        (tuple[int, str], [1, "a", 2]),
        (set[int], [1, 1]),
        (Point, {"y": 1}),
        (Point, {"x": "1"}),
        (Row, {"id": 1, "nam": "x"}),
        (Pair, []),
        (Shape, {"sides": "3"}),
        (dict[str, int], {"a": "1"}),
        (Decimal, "1e9"),
        (Decimal, "NaN"),
        (dt.datetime, 0),
        (dt.timedelta, 5),
    ]
    for annotation, given in cases:
        with subtests.test(annotation=annotation, given=given):
            parameters = compile_parameters(make_tool(annotation), is_injected=nothing)
            with pytest.raises(ArgumentError, match=r"^value"):
                parameters.check({"value": given})


def test_invalid_values_that_fit_the_schema_are_refused_by_conversion(subtests: pytest.Subtests) -> None:
    cases = [
        (dt.date, "2024-02-30", "value: .*2024-02-30.*date"),
        (dt.datetime, "tomorrow", "value: .*tomorrow.*datetime"),
        (uuid.UUID, "x", "value: .*UUID"),
        (dict[int, int], {"x": 1}, "value"),
        (list[uuid.UUID], [U, "x"], r"value\[1\]: .*UUID"),
        (Shape, {"sides": 3, "when": "never"}, "value: "),
    ]
    for annotation, given, text in cases:
        with subtests.test(annotation=annotation, given=given, text=text):
            parameters = compile_parameters(make_tool(annotation), is_injected=nothing)
            parameters.check({"value": given})
            with pytest.raises(ArgumentError, match=text):
                parameters.convert({"value": given})


def test_an_inexact_integer_is_refused(subtests: pytest.Subtests) -> None:
    for given in [2**63, 2**64 - 1, float(2**53), 1e17, 1e300]:
        for annotation in [int, Annotated[int, Field(gt=0)], Optional[int], int | str]:
            with subtests.test(given=given, annotation=annotation):
                parameters = compile_parameters(make_tool(annotation), is_injected=nothing)
                parameters.check({"value": given})
                with pytest.raises(ArgumentError, match=r"value: .* must be an exact integer of at most 64 bits"):
                    parameters.convert({"value": given})


def test_integers_are_exact_inside_every_type(subtests: pytest.Subtests) -> None:
    cases = [
        (list[int], lambda n: [n]),
        (dict[str, int], lambda n: {"a": n}),
        (Point, lambda n: {"x": n}),
        (Row, lambda n: {"id": n}),
        (Pair, lambda n: [n]),
        (Model, lambda n: {"id": n}),
        (list[Model], lambda n: [{"id": 1, "parent": {"id": n}}]),
    ]
    for annotation, wrap in cases:
        with subtests.test(annotation=annotation, wrap=wrap):
            parameters = compile_parameters(make_tool(annotation), is_injected=nothing)
            parameters.convert({"value": wrap(2**63 - 1)})
            for given in (2**63, float(2**60)):
                with pytest.raises(ArgumentError, match="exact integer"):
                    parameters.convert({"value": wrap(given)})


def test_large_floats_are_floats() -> None:
    assert compile_parameters(make_tool(float), is_injected=nothing).convert({"value": 1e300}) == {"value": 1e300}


def test_types_are_described_once_and_referenced() -> None:
    schema = compile_type(dict[str, Row | Tree | Shape], "test").schema
    assert set(schema["$defs"]) == {"Row", "Tree", "Shape"}
    assert schema["$defs"]["Tree"]["properties"]["children"] == {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    assert schema["$defs"]["Shape"]["description"] == "A shape."
    assert schema["$defs"]["Row"]["required"] == ["id"]


def test_a_struct_keeps_the_description_of_its_parameter() -> None:
    schema = compile_parameters(make_tool(Annotated[Shape, Field(description="Which")]), is_injected=nothing).schema
    assert schema["properties"]["value"] == {"$ref": "#/$defs/Shape", "description": "Which"}


def test_two_structs_with_the_same_name_are_distinguished() -> None:
    other = msgspec.defstruct("Shape", [("colour", str)], module="elsewhere")
    schema = compile_type(tuple[Shape, other], "test").schema  # type: ignore[valid-type]
    first, second = (item["$ref"].removeprefix("#/$defs/") for item in schema["prefixItems"])
    assert list(schema["$defs"][first]["properties"]) == ["sides", "inner", "when"]
    assert list(schema["$defs"][second]["properties"]) == ["colour"]


def test_a_struct_and_a_model_with_the_same_name_are_refused() -> None:
    struct = msgspec.defstruct("Model", [("colour", str)])
    with pytest.raises(DeclarationError, match="test: two types are called Model; rename"):
        compile_type(tuple[Model, struct], "test")  # type: ignore[valid-type]


def test_a_struct_with_a_type_unknown_to_msgspec_is_refused() -> None:
    struct = msgspec.defstruct("Holder", [("model", Model)])
    with pytest.raises(DeclarationError, match="test: msgspec cannot describe Holder"):
        compile_type(struct, "test")


def test_an_enum_has_no_title_and_no_description() -> None:
    assert compile_type(Colour, "test").schema == {"enum": ["red", "blue"], "type": "string"}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes typing.TypedDict from Python 3.12 on")
def test_a_typed_dict_inside_a_dataclass_is_refused_with_an_import_hint() -> None:
    @dataclass
    class Holder:
        row: Row

    with pytest.raises(DeclarationError, match=r"typing_extensions\.TypedDict"):
        compile_type(Holder, "test")

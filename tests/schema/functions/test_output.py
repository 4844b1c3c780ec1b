"""Return annotations as output schemas, and results on their way to the client."""

import enum
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, Never, TypedDict

import pytest
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field

from mcp_django.schema import CompiledOutput, DeclarationError, OutputError, compile_output


class Content:
    pass


class Colour(enum.Enum):
    RED = "red"


class Airport(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    code: str
    elevation: int | None = Field(default=None, alias="elevationFeet")

    @computed_field
    def label(self) -> str:
        return f"Airport {self.code}"


@dataclass
class Point:
    x: float
    y: float = 0


class Pair(NamedTuple):
    left: int
    right: str


class Row(TypedDict):
    id: int


class Node(BaseModel):
    children: "list[Node]" = []


def compile_return(annotation: Any, **options: Any) -> CompiledOutput | None:
    def tool() -> None: ...

    tool.__annotations__["return"] = annotation
    return compile_output(tool, is_content=lambda it: it is Content, **options)


def compile_schema(annotation: Any, **options: Any) -> CompiledOutput:
    output = compile_return(annotation, **options)
    assert output is not None
    return output


def test_a_function_without_return_annotation_has_no_output_schema() -> None:
    def tool():  # type: ignore[no-untyped-def]
        ...

    assert compile_output(tool, is_content=lambda it: False) is None


def test_annotations_without_a_type_have_no_output_schema(subtests: pytest.Subtests) -> None:
    cases = [None, Any, object, bytes, Never, Annotated[Any, "whatever"], Awaitable[None]]
    for annotation in cases:
        with subtests.test(annotation=annotation):
            assert compile_return(annotation) is None


def test_content_in_an_annotation_means_no_output_schema(subtests: pytest.Subtests) -> None:
    cases = [
        Content,
        list[Content],
        Content | None,
        str | Content,
        list[str | Content],
        Annotated[Content, 1],
        Awaitable[Content],
    ]
    for annotation in cases:
        with subtests.test(annotation=annotation):
            assert compile_return(annotation) is None


def test_plain_values_are_wrapped(subtests: pytest.Subtests) -> None:
    cases = [(int, 5, "integer"), (str, "", "string"), (float, 1.5, "number"), (bool, False, "boolean")]
    for annotation, value, kind in cases:
        with subtests.test(annotation=annotation, value=value, kind=kind):
            output = compile_schema(annotation)
            assert output.is_wrapped
            assert output.schema == {"type": "object", "properties": {"result": {"type": kind}}, "required": ["result"]}
            assert output.to_structured(value) == {"result": value}
            assert output.dump(value) == value


def test_types_other_than_objects_are_wrapped(subtests: pytest.Subtests) -> None:
    cases = [
        (list[int], [1], [1]),
        (int | None, None, None),
        (Airport | None, Airport(code="BER"), {"code": "BER", "elevationFeet": None, "label": "Airport BER"}),
        (Pair, Pair(1, "a"), [1, "a"]),
        (tuple[int, ...], (1, 2), [1, 2]),
        (set[int], {1}, [1]),
        (Colour, Colour.RED, "red"),
        (float, 3, 3),
        (list[Point], [Point(1)], [{"x": 1, "y": 0}]),
    ]
    for annotation, value, expected in cases:
        with subtests.test(annotation=annotation, value=value, expected=expected):
            output = compile_schema(annotation)
            assert output.is_wrapped
            assert output.schema["type"] == "object"
            assert output.dump(value) == expected
            assert output.to_structured(value) == {"result": expected}


def test_an_object_is_not_wrapped(subtests: pytest.Subtests) -> None:
    cases = [
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Point, Point(1), {"x": 1, "y": 0}),
        (Row, {"id": 1}, {"id": 1}),
        (Airport, Airport(code="BER", elevation=5), {"code": "BER", "elevationFeet": 5, "label": "Airport BER"}),
        (Node, Node(children=[Node()]), {"children": [{"children": []}]}),
        (Awaitable[Row], {"id": 1}, {"id": 1}),
        (Coroutine[Any, Any, Row], {"id": 1}, {"id": 1}),
    ]
    for annotation, value, expected in cases:
        with subtests.test(annotation=annotation, value=value, expected=expected):
            output = compile_schema(annotation)
            assert not output.is_wrapped
            assert output.schema["type"] == "object"
            assert output.to_structured(value) == output.dump(value) == expected


def test_the_schema_describes_the_serialized_value() -> None:
    schema = compile_schema(Airport).schema
    assert set(schema["properties"]) == {"code", "elevationFeet", "label"}
    assert "label" in schema["required"]


def test_definitions_of_a_wrapped_type_are_at_the_root() -> None:
    schema = compile_schema(list[Row]).schema
    assert schema["properties"] == {"result": {"type": "array", "items": {"$ref": "#/$defs/Row"}}}
    assert set(schema["$defs"]) == {"Row"}


def test_every_finite_decimal_fits_its_schema(subtests: pytest.Subtests) -> None:
    for value in ["1E+2", "0E-7", "-0", "1.50", "123456789012345678901234567890.5"]:
        with subtests.test(value=value):
            assert compile_schema(Decimal).to_structured(Decimal(value)) == {"result": value}


def test_a_result_that_violates_its_schema_is_a_bug(subtests: pytest.Subtests) -> None:
    cases = [
        (float, math.nan),
        (float, math.inf),
        (list[float], [math.nan]),
        (Point, Point(math.inf)),
        (Decimal, Decimal("NaN")),
        (int, 2**63),
        (int, "5"),
        (int, None),
        (str, 5),
        (bool, 1),
        (float, Decimal("1.5")),
        (list[int], [1, "a"]),
        (Row, {"id": "x"}),
        (Row, {}),
        (Row, [1]),
        (Point, object()),
        (dict[str, int], None),
        (Colour, "green"),
        (Airport, {"code": 5, "label": "x"}),
    ]
    for annotation, value in cases:
        with (
            subtests.test(annotation=annotation, value=value),
            pytest.raises(OutputError, match=r"tool\(\): the result "),
        ):
            compile_schema(annotation).to_structured(value)


def test_a_result_of_another_type_that_fits_the_schema_is_accepted() -> None:
    assert compile_schema(Point).to_structured({"x": 1, "y": 2}) == {"x": 1, "y": 2}
    assert compile_schema(list[Row]).to_structured({"id": n} for n in range(2)) == {"result": [{"id": 0}, {"id": 1}]}
    assert compile_schema(Row).to_structured(type("Sub", (dict,), {})(id=1)) == {"id": 1}


def test_subclasses_of_plain_types_are_accepted() -> None:
    class Safe(str):
        __slots__ = ()

    class Number(enum.IntEnum):
        ONE = 1

    assert compile_schema(str).to_structured(Safe("x")) == {"result": "x"}
    assert compile_schema(int).to_structured(Number.ONE) == {"result": 1}
    assert type(compile_schema(int).to_structured(True)["result"]) is int


def test_lazy_text_is_written_out() -> None:
    translation = pytest.importorskip("django.utils.functional").lazystr("Hello")
    assert compile_schema(str).to_structured(translation) == {"result": "Hello"}
    assert compile_schema(dict[str, Any]).to_structured({"a": translation}) == {"a": "Hello"}


def test_fields_of_a_subclass_are_not_sent() -> None:
    class Secret(Airport):
        password: str

    assert "password" not in compile_schema(Airport).to_structured(Secret(code="BER", password="x"))


def test_a_type_with_serialization_only_is_described() -> None:
    class Opaque:
        pass

    described = Annotated[Opaque, PlainSerializer(lambda value: "opaque", return_type=str)]
    with pytest.raises(DeclarationError):
        compile_schema(described)


def test_a_return_type_without_json_form_is_refused() -> None:
    class Socket:
        pass

    with pytest.raises(DeclarationError, match=r"tool\(\): the return value: the type .*Socket has no JSON form"):
        compile_return(Socket)


def test_a_handwritten_output_schema_replaces_the_annotation() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    output = compile_schema(Content, output_schema=schema)
    assert output.schema is schema
    assert not output.is_wrapped
    assert output.to_structured({"n": 1}) == {"n": 1}
    with pytest.raises(OutputError, match="missing key 'n'"):
        output.to_structured(Point(1))


def test_a_handwritten_output_schema_needs_an_object_at_its_root() -> None:
    with pytest.raises(DeclarationError, match=r"tool\(\): output_schema: the root must have 'type': 'object'"):
        compile_return(int, output_schema={"type": "array"})


def test_a_type_may_replace_the_annotation() -> None:
    output = compile_schema(None, output_schema=Row)
    assert output.to_structured({"id": 1}) == {"id": 1}


def test_methods_have_output_schemas_like_functions() -> None:
    class Service:
        def tool(self) -> int:
            return 1

        def __call__(self) -> str:
            return ""

    service = Service()
    handlers: list[Callable[..., Any]] = [service.tool, service]
    kinds = [compile_output(handler, is_content=lambda it: False) for handler in handlers]
    assert [kind.schema["properties"]["result"]["type"] for kind in kinds if kind] == ["integer", "string"]

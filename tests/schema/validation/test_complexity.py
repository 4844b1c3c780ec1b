"""Small values that could make much work: refused at registration, or explained within bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

import pytest
from pydantic import BaseModel, Field

from mcp_django.schema import ArgumentError, DeclarationError, compile_parameters
from mcp_django.schema.validation.complexity import UNLIMITED_DEPTH, SchemaGraph


class Leaf(BaseModel):
    kind: Literal["leaf"]


class Not(BaseModel):
    child: "Annotated[Not | Wrap | Leaf, Field(discriminator='kind')]"
    kind: Literal["not"]


class Wrap(BaseModel):
    child: "Annotated[Not | Wrap | Leaf, Field(discriminator='kind')]"
    kind: Literal["wrap"]


class Left(BaseModel):
    child: "Left | Right | None" = None
    a: int = 0


class Right(BaseModel):
    children: "list[Left | Right]" = []
    b: int = 0


@dataclass
class Chain:
    next: "Chain | None" = None
    other: Union["Chain", int, list["Chain"]] = 0


def make_tool(annotation: Any) -> Callable[..., None]:
    def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = annotation
    return tool


def by_hand(**arguments: Any) -> None: ...


def nothing(annotation: Any) -> bool:
    return False


def nested(levels: int, kind: str, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = {"child": leaf, "kind": kind}
    return leaf


def test_mutually_recursive_unions_need_a_discriminator() -> None:
    with pytest.raises(DeclarationError, match=r"tool\(\): Left and Right form .* Field\(discriminator=...\)"):
        compile_parameters(make_tool(Left), is_injected=nothing)


def test_a_type_with_one_recursion_needs_no_discriminator() -> None:
    parameters = compile_parameters(make_tool(Chain), is_injected=nothing)
    value = {"value": {"next": {"other": [{"other": 1}]}}}
    parameters.check(value)
    assert parameters.convert(value) == {"value": Chain(Chain(None, [Chain(None, 1)]))}


def test_a_deep_value_of_discriminated_types_is_checked_and_converted(subtests: pytest.Subtests) -> None:
    for levels in [1, 60]:
        for kind in ["not", "wrap"]:
            with subtests.test(levels=levels, kind=kind):
                parameters = compile_parameters(make_tool(Not), is_injected=nothing)
                value = {"value": {"kind": "not", "child": nested(levels, kind, {"kind": "leaf"})}}
                parameters.check(value)
                assert parameters.convert(value)["value"].child.kind == kind


def test_a_deep_value_is_explained_from_its_top() -> None:
    parameters = compile_parameters(make_tool(Not), is_injected=nothing)
    deep = {"value": nested(60, "not", {"kind": "flower"})}
    with pytest.raises(ArgumentError, match=r"^value: breaks its schema beyond its first items or levels"):
        parameters.check(deep)
    deep["value"]["child"] = 5
    with pytest.raises(ArgumentError, match=r"^value\.child: 5 is an integer; give an object$"):
        parameters.check(deep)


def test_explaining_a_deep_value_takes_bounded_time() -> None:
    """Without the cut it takes hours."""
    parameters = compile_parameters(make_tool(Not), is_injected=nothing)
    deep = {"value": nested(40, "not", {"kind": "flower"})}
    with pytest.raises(ArgumentError):
        parameters.check(deep)


def test_the_depth_of_an_explanation_depends_on_recursive_alternatives() -> None:
    def schema(fan: int) -> dict[str, Any]:
        choice = {"anyOf": [{"$ref": f"#/$defs/{n}"} for n in range(fan)]}
        return {"$defs": {str(n): {"properties": {"a": choice}} for n in range(fan)}, "$ref": "#/$defs/0"}

    assert [SchemaGraph(schema(fan)).max_explained_depth() for fan in (1, 2, 5, 50)] == [UNLIMITED_DEPTH, 8, 3, 2]


def bomb(levels: int) -> dict[str, Any]:
    again = [{"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(levels)]
    return {"type": "object", "$defs": {str(n): inner for n, inner in enumerate([*again, {}])}, "$ref": "#/$defs/0"}


LOOPS: list[dict[str, Any]] = [
    {"type": "object", "$ref": "#"},
    {"type": "object", "allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}},
    {"type": "object", "properties": {"x": {"$ref": "#a"}}, "$defs": {"n": {"$anchor": "a", "if": {"$ref": "#a"}}}},
    {"type": "object", "$defs": {"a/b~c": {"anyOf": [{"$ref": "#/$defs/a~1b~0c"}]}}},
]


def test_references_that_apply_many_schemas_to_one_value_are_refused(subtests: pytest.Subtests) -> None:
    for schema in [bomb(30), *LOOPS]:
        with (
            subtests.test(schema=schema),
            pytest.raises(DeclarationError, match="input_schema: references apply more than"),
        ):
            compile_parameters(by_hand, is_injected=nothing, input_schema=schema)


def test_references_that_recurse_into_a_part_of_the_value_are_allowed() -> None:
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
    for schema in (bomb(5), tree):
        compile_parameters(by_hand, is_injected=nothing, input_schema=schema).check({})

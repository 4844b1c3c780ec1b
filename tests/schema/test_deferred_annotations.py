"""Annotations as strings, as `from __future__ import annotations` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

import pytest
from pydantic import Field

from mcp_django.schema import DeclarationError, compile_output, compile_parameters

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Airport:
    code: str
    near: list[Airport]


class Row(TypedDict):
    id: int
    name: NotRequired[str]


@dataclass
class Priced:
    price: Decimal


def nothing(annotation: Any) -> bool:
    return False


def test_module_level_types_are_resolved_at_any_depth() -> None:
    def tool(airport: Airport, rows: dict[str, list[Row]], limit: Annotated[int, Field(ge=1)] = 1) -> Airport: ...

    parameters = compile_parameters(tool, is_injected=nothing)
    assert set(parameters.schema["$defs"]) == {"Airport", "Row"}
    assert parameters.schema["$defs"]["Row"]["required"] == ["id"]
    converted = parameters.convert({"airport": {"code": "BER", "near": []}, "rows": {"a": [{"id": 1}]}})
    assert converted == {"airport": Airport("BER", []), "rows": {"a": [{"id": 1}]}}
    output = compile_output(tool, is_content=nothing)
    assert output is not None
    assert not output.is_wrapped


def test_a_name_the_function_closes_over_is_resolved() -> None:
    @dataclass
    class Local:
        a: int

    def tool(local: Local) -> Any:
        return Local(1), local

    assert compile_parameters(tool, is_injected=nothing).convert({"local": {"a": 2}}) == {"local": Local(2)}


def test_a_name_that_is_not_yet_assigned_is_refused() -> None:
    def tool(later: Later) -> Any:
        return Later, later

    with pytest.raises(DeclarationError, match="parameter 'later': the annotation 'Later' cannot be resolved"):
        compile_parameters(tool, is_injected=nothing)
    Later = int  # noqa: N806
    assert compile_parameters(tool, is_injected=nothing).convert({"later": 1}) == {"later": 1}


def test_an_unresolvable_local_type_is_named_with_a_hint() -> None:
    class Local(TypedDict):
        a: int

    def tool(code: str, local: Local) -> None: ...

    with pytest.raises(DeclarationError) as caught:
        compile_parameters(tool, is_injected=nothing)
    text = str(caught.value)
    assert "tool(): parameter 'local': the annotation 'Local' cannot be resolved" in text
    assert "import the type at module level, outside 'if TYPE_CHECKING:'" in text


def test_a_type_imported_for_type_checkers_only_is_named() -> None:
    def tool(price: Decimal | None) -> None: ...

    with pytest.raises(DeclarationError, match=r"parameter 'price': the annotation 'Decimal \| None'"):
        compile_parameters(tool, is_injected=nothing)


def test_an_unresolvable_return_type_is_named() -> None:
    def tool() -> Decimal: ...

    with pytest.raises(DeclarationError, match=r"tool\(\): the return value: the annotation 'Decimal'"):
        compile_output(tool, is_content=nothing)


def test_an_unresolvable_type_inside_another_is_named() -> None:
    def tool(priced: Priced) -> None: ...

    with pytest.raises(DeclarationError, match=r"parameter 'priced': the type Priced refers to 'Decimal'"):
        compile_parameters(tool, is_injected=nothing)


def test_methods_resolve_names_of_their_module() -> None:
    class Service:
        def tool(self, row: Row) -> None: ...

    assert set(compile_parameters(Service().tool, is_injected=nothing).schema["$defs"]) == {"Row"}

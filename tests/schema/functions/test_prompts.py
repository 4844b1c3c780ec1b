"""Values that arrive as text: prompt arguments and address variables."""

import datetime as dt
import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import Field

from mcp_django.schema import (
    ArgumentError,
    DeclarationError,
    PromptParameters,
    compile_prompt_parameters,
    compile_uri_parameters,
)


class Context:
    pass


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int


def is_injected(annotation: Any) -> bool:
    return annotation is Context


def prompt(fn: Any) -> PromptParameters:
    return compile_prompt_parameters(fn, is_injected=is_injected)


def compile_variables(fn: Any, *variables: str) -> PromptParameters:
    return compile_uri_parameters(fn, variables, is_injected=is_injected)


def make_prompt(annotation: Any) -> Any:
    def fn(value: Any) -> None: ...

    fn.__annotations__["value"] = annotation
    return fn


def test_arguments_are_listed_with_descriptions_and_required() -> None:
    def plan(ctx: Context, origin: str, days: Annotated[int, Field(description="How long")] = 3) -> None:
        """Plan.

        Args:
            origin: Where from.
        """

    parameters = prompt(plan)
    assert parameters.arguments == [
        {"name": "origin", "description": "Where from.", "required": True},
        {"name": "days", "description": "How long", "required": False},
    ]
    assert parameters.injected == {"ctx": Context}


def test_a_prompt_may_have_no_arguments() -> None:
    def hello() -> None: ...

    assert prompt(hello).arguments == []
    assert prompt(hello).convert({}) == {}


def test_a_text_is_converted_to_the_annotated_type(subtests: pytest.Subtests) -> None:
    cases = [
        (str, "5", "5"),
        (Any, "5", "5"),
        (str | None, "null", "null"),
        (Annotated[str, Field(max_length=3)], "abc", "abc"),
        (int, "5", 5),
        (float, "1.5", 1.5),
        (bool, "true", True),
        (int | None, "5", 5),
        (dt.date, "2024-05-01", dt.date(2024, 5, 1)),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        (Path, "a/b", Path("a/b")),
        (Literal["a", "b"], "b", "b"),
        (Literal[1, 2], "2", 2),
        (Level, "2", Level.HIGH),
        (list[int], "[1, 2]", [1, 2]),
        (list[int], "7", [7]),
        (list[str], "red", ["red"]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Point, '{"x": 1}', Point(1)),
        (Point | None, '{"x": 1}', Point(1)),
    ]
    for annotation, text, value in cases:
        with subtests.test(annotation=annotation, text=text, value=value):
            converted = prompt(make_prompt(annotation)).convert({"value": text})["value"]
            assert converted == value
            assert type(converted) is type(value)


def test_an_invalid_text_is_refused_with_the_name(subtests: pytest.Subtests) -> None:
    cases = [
        (int, "x"),
        (int, "1.5"),
        (int, str(2**63)),
        (int, "9" * 5000),
        (bool, "maybe"),
        (dt.date, "tomorrow"),
        (Literal["a"], "b"),
        (list[int], "[1, "),
        (list[int], '["a"]'),
        (Point, "x"),
        (Point, '{"y": 1}'),
        (Annotated[int, Field(le=5)], "6"),
    ]
    for annotation, text in cases:
        with subtests.test(annotation=annotation, text=text):
            with pytest.raises(ArgumentError, match=r"^value") as caught:
                prompt(make_prompt(annotation)).convert({"value": text})
            assert len(str(caught.value)) <= 1000


def test_a_value_that_is_not_text_is_refused(subtests: pytest.Subtests) -> None:
    for given in [5, None, True, ["a", 5], {"a": "b"}]:
        with subtests.test(given=given), pytest.raises(ArgumentError, match=r"value: .* is not a string"):
            prompt(make_prompt(str)).convert({"value": given})


def test_missing_and_unknown_arguments_are_named() -> None:
    def plan(origin: str, days: int = 3) -> None: ...

    with pytest.raises(ArgumentError) as caught:
        prompt(plan).convert({"orign": "BER"})
    assert str(caught.value) == "unknown argument 'orign'; did you mean 'origin'?; missing argument 'origin'"
    assert prompt(plan).convert({"origin": "BER"}) == {"origin": "BER"}


def test_a_field_as_default_uses_its_default() -> None:
    def plan(days: int = Field(3, ge=1), tags: list[str] = Field(default_factory=list)) -> None: ...  # noqa: B008

    assert prompt(plan).arguments == [{"name": "days", "required": False}, {"name": "tags", "required": False}]
    assert prompt(plan).convert({}) == {"days": 3, "tags": []}


def test_keyword_arguments_of_a_prompt_are_refused() -> None:
    def plan(**values: str) -> None: ...

    with pytest.raises(DeclarationError, match="which a prompt cannot list"):
        prompt(plan)


def test_an_alias_is_refused_because_texts_have_none() -> None:
    def plan(days: Annotated[int, Field(alias="d")]) -> None: ...

    with pytest.raises(DeclarationError, match="parameter 'days' has an alias"):
        prompt(plan)


def test_variables_become_typed_keyword_arguments() -> None:
    def airport(ctx: Context, code: str, year: int, limit: int = 5) -> None: ...

    parameters = compile_variables(airport, "code", "year")
    assert parameters.convert({"code": "BER", "year": "2024"}) == {"code": "BER", "year": 2024}
    assert parameters.injected == {"ctx": Context}
    with pytest.raises(ArgumentError, match="missing variable 'year'"):
        parameters.convert({"code": "BER"})


def test_a_variable_with_several_values_is_a_list_or_joined() -> None:
    def file(path: list[str], ids: list[int], name: str, where: Path) -> None: ...

    given = {"path": ["a", "b"], "ids": ["1", "2"], "name": ["a", "b"], "where": ["a", "b"]}
    assert compile_variables(file, "path", "ids", "name", "where").convert(given) == {
        "path": ["a", "b"],
        "ids": [1, 2],
        "name": "a/b",
        "where": Path("a/b"),
    }


def test_one_value_for_a_list_is_a_list_of_one() -> None:
    def file(path: list[str]) -> None: ...

    assert compile_variables(file, "path").convert({"path": "a"}) == {"path": ["a"]}


def test_keyword_arguments_get_the_variables_without_a_parameter() -> None:
    def file(a: int, **rest: str) -> None: ...

    assert compile_variables(file, "a", "b").convert({"a": "1", "b": "2"}) == {"a": 1, "b": "2"}


def test_a_variable_without_parameter_is_refused() -> None:
    def file(path: str) -> None: ...

    with pytest.raises(DeclarationError, match=r"file\(\) has no parameter for the variable 'name'"):
        compile_variables(file, "path", "name")


def test_a_parameter_that_is_not_a_variable_needs_a_default() -> None:
    def file(path: str, size: int) -> None: ...

    with pytest.raises(
        DeclarationError, match=r"parameter 'size' is not a variable of the URI template; add \{size\} there"
    ):
        compile_variables(file, "path")

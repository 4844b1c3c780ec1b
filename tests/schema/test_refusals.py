"""Messages for invalid arguments: the path, the rule and the remedy, in limited length."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from pydantic import AfterValidator, BaseModel, Field

from mcp_django.schema import ArgumentError, compile_parameters
from mcp_django.schema.validation.truncation import MAX_NODES, truncate_value
from mcp_django.schema.validation.validation import MAX_PROBLEMS, SchemaChecker


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str
    tail: bool


@dataclass
class Filter:
    limits: list[int]


class Row(TypedDict):
    id: int
    name: NotRequired[str]


def even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


def search(
    query: Annotated[str, Field(min_length=2, max_length=10)] = "xx",
    limit: Annotated[int, Field(ge=1, le=50)] = 5,
    ratio: Annotated[float, Field(gt=0, lt=1)] = 0.5,
    step: Annotated[int, Field(multiple_of=5)] = 5,
    code: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "BER",
    order: Literal["name", "code"] = "name",
    exact: Literal[True] = True,
    tags: Annotated[list[str], Field(min_length=1, max_length=2)] = ["a"],  # noqa: B006
    ids: set[int] | None = None,
    filter: Filter | None = None,
    either: int | bool = 1,
    pet: Cat | Dog | None = None,
    rows: dict[str, Row] | None = None,
    pair: tuple[int, int] = (1, 2),
    parity: Annotated[int, AfterValidator(even)] = 2,
) -> None: ...


PARAMETERS = compile_parameters(search, is_injected=lambda annotation: False)


def run(arguments: Any) -> None:
    PARAMETERS.check(arguments)
    PARAMETERS.convert(arguments)


def refusal(arguments: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        run(arguments)
    return str(caught.value)


def test_the_problem_has_the_path_and_the_rule(subtests: pytest.Subtests) -> None:
    cases = [
        ({"limit": 99}, "limit: 99 is greater than the maximum of 50"),
        ({"limit": 0}, "limit: 0 is less than the minimum of 1"),
        ({"ratio": 1}, "ratio: 1 must be less than 1"),
        ({"ratio": 0}, "ratio: 0 must be greater than 0"),
        ({"step": 7}, "step: 7 is not a multiple of 5"),
        ({"query": "x"}, "query: shorter than the minimum of 2 characters"),
        ({"query": "x" * 11}, "query: longer than the maximum of 10 characters"),
        ({"code": "ber"}, 'code: "ber" does not match the pattern ^[A-Z]{3}$'),
        ({"order": "nam"}, 'order: "nam" is not one of "name", "code"'),
        ({"exact": False}, "exact: false is not true, the only value allowed"),
        ({"tags": []}, "tags: has fewer items than the minimum of 1"),
        ({"tags": ["a", "b", "c"]}, "tags: has more items than the maximum of 2"),
        ({"tags": ["a", 5]}, "tags[1]: 5 is an integer; give a string"),
        ({"ids": [1, 1]}, "ids: has an item twice; each must be different"),
        ({"filter": {"limits": [1, "2"]}}, 'filter.limits[1]: "2" is a string; give an integer'),
        ({"filter": {}}, "filter: missing key 'limits'"),
        ({"filter": [1]}, "filter: is a list; give an object or null"),
        ({"either": None}, "either: is null; give an integer or true or false"),
        ({"pet": {"kind": "dog", "name": "Rex"}}, "pet: missing key 'tail'"),
        ({"pet": {"kind": "cat"}}, "pet: missing key 'lives'"),
        ({"rows": {"a b": {"id": "1"}}}, 'rows.a b.id: "1" is a string; give an integer'),
        ({"pair": [1]}, "pair: has fewer items than the minimum of 2"),
        ({"parity": 3}, "parity: 3 must be even"),
        ({"limt": 5}, "unknown argument 'limt'; did you mean 'limit'?"),
        ({"completely_other": 5}, "unknown argument 'completely_other'"),
        ([], "arguments: is a list; give an object"),
        (None, "arguments: is null; give an object"),
        ("{}", 'arguments: "{}" is a string; give an object'),
    ]
    for arguments, text in cases:
        with subtests.test(arguments=arguments, text=text):
            assert refusal(arguments) == text


def test_every_keyword_of_a_handwritten_schema_has_a_message(subtests: pytest.Subtests) -> None:
    cases = [
        (
            {"oneOf": [{"minimum": 1}, {"minimum": 2}]},
            3,
            "a: 3 fits several of the forms allowed, but must fit exactly one",
        ),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, 3, "a: 3 is an integer; give a string or null"),
        ({"not": {"type": "string"}}, "x", 'a: "x" is not allowed here'),
        (False, [1], "a: the list is not allowed here"),
        (
            {"propertyNames": {"maxLength": 2}},
            {"abc": 1},
            'a: a key breaks its rule: "abc" is longer than 2 characters',
        ),
        ({"minProperties": 1}, {}, "a: has fewer keys than the minimum of 1"),
        ({"maxProperties": 0}, {"b": 1}, "a: has more keys than the maximum of 0"),
        ({"prefixItems": [{}], "items": False}, [1, 2], "a[1]: 2 is not allowed here"),
        ({"prefixItems": [{}], "unevaluatedItems": False}, [1, 2], "a: has more items than are allowed"),
        (
            {"properties": {"b": {}}, "unevaluatedProperties": False},
            {"bb": 1},
            "a: unknown key 'bb'; did you mean 'b'?",
        ),
        ({"patternProperties": {"^b": {}}, "additionalProperties": False}, {"c": 1}, "a: unknown key 'c'"),
        ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, "c", 'a: "c" is not one of "a", "b"'),
        (
            {"anyOf": [{"oneOf": [{"const": "a"}, {"const": "b"}]}, {"type": "null"}]},
            "c",
            'a: "c" is not one of "a", "b"',
        ),
        ({"enum": list(range(20))}, 99, "a: 99 is not one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more"),
        ({"const": {"b": 1}}, None, "a: null is not the object, the only value allowed"),
        ({"type": ["integer", "null"]}, 1.5, "a: 1.5 is a number; give an integer or null"),
    ]
    for rule, value, text in cases:
        with subtests.test(rule=rule, value=value, text=text):
            checker = SchemaChecker({"type": "object", "properties": {"a": rule}})
            assert checker.describe_problems({"a": value}) == text


def test_alternatives_at_the_root_are_described() -> None:
    checker = SchemaChecker({"anyOf": [{"type": "array"}, {"type": "string"}]})
    assert checker.describe_problems({}) == "arguments: is an object; give a list or a string"
    assert (
        SchemaChecker({"anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}]}).describe_problems({})
        == "missing argument 'a'"
    )


def test_missing_arguments_are_named() -> None:
    def tool(code: str, lat: float) -> None: ...

    parameters = compile_parameters(tool, is_injected=lambda annotation: False)
    with pytest.raises(ArgumentError, match=r"^missing argument 'code'; missing argument 'lat'$"):
        parameters.check({})
    with pytest.raises(ArgumentError, match=r"^missing argument 'lat'$"):
        parameters.convert({"code": "x"})


def test_up_to_five_problems_are_reported_at_once() -> None:
    problems = refusal({"limit": 0, "ratio": 9, "step": 1, "query": "", "code": "", "order": "", "wrong": 1}).split(
        "; "
    )
    assert len(problems) == MAX_PROBLEMS
    assert len(set(problems)) == MAX_PROBLEMS


def test_large_values_are_never_repeated(subtests: pytest.Subtests) -> None:
    cases = [
        {"limit": "9" * 100_000},
        {"order": "x" * 100_000},
        {"code": "x" * 100_000},
        {"x" * 100_000: 1},
        {"tags": ["a", {"b" * 1000: "c" * 100_000}]},
        {"rows": {"k" * 100_000: 5}},
        {"filter": {"limits": [], "f" * 100_000: 1}},
        {"parity": 10**5000},
    ]
    for arguments in cases:
        with subtests.test(arguments=arguments):
            assert len(refusal(arguments)) <= 200


def test_many_unknown_arguments_are_not_all_listed() -> None:
    assert len(refusal({f"unknown_{n}": n for n in range(5000)}).split("; unknown")) <= MAX_PROBLEMS


MANY = 300_000


def test_the_beginning_of_a_large_value_is_explained(subtests: pytest.Subtests) -> None:
    cases = [
        ({"tags": [1] * MANY}, "tags[0]: 1 is an integer; give a string"),
        ({"filter": {"limits": ["x"] * MANY}}, 'filter.limits[0]: "x" is a string; give an integer'),
        ({"ids": [*range(MANY), "x"]}, "ids: breaks its schema beyond its first items or levels; check every one"),
    ]
    for arguments, text in cases:
        with subtests.test(arguments=arguments, text=text):
            assert text in refusal(arguments)


def test_a_missing_item_is_not_reported_for_a_truncated_value() -> None:
    checker = SchemaChecker({"properties": {"a": {"minItems": 100, "items": {"type": "integer"}}}, "type": "object"})
    problems = checker.describe_problems({"a": [*range(5000), "x"]})
    assert problems == "a: breaks its schema beyond its first items or levels; check every one"


def test_an_excerpt_is_within_its_limits() -> None:
    def size(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + sum(map(size, inner))

    value: Any = [1] * 60
    for _ in range(4):
        value = {str(n): value for n in range(60)}
    assert size(truncate_value(value, 64).value) <= MAX_NODES * 2
    small = {"a": [1, 2, {"b": None}]}
    assert truncate_value(small, 3).value is small
    part = truncate_value(small, 2)
    assert part.value == {"a": [1, 2, {}]}
    assert part.cut_paths == {("a", 2)}


def test_conversion_of_long_lists_stops_at_the_first_failure() -> None:
    def tool(days: list[Annotated[int, AfterValidator(even)]]) -> None: ...

    parameters = compile_parameters(tool, is_injected=lambda annotation: False)
    with pytest.raises(ArgumentError, match=r"^days\[0\]: 1 must be even$"):
        parameters.convert({"days": [1] * MANY})


def test_a_valid_value_has_no_problems() -> None:
    assert SchemaChecker({"type": "object"}).describe_problems({}) == ""

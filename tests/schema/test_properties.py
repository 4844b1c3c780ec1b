"""Properties of all inputs."""

import datetime as dt
import json
import string
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import jsonschema_rs
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from mcp_django.schema import ArgumentError, OutputError, build_form, compile_output, compile_parameters, to_json
from mcp_django.schema.functions.callables import parse_docstring


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float = 0


class Row(TypedDict):
    id: int
    name: NotRequired[str | None]


class Pair(NamedTuple):
    left: int
    right: str = ""


class Model(BaseModel):
    when: dt.datetime | None = None
    inner: "list[Model]" = []


class Struct(msgspec.Struct):
    n: int
    tags: list[str] = []


def everything(
    i: int = 0,
    f: float = 0,
    s: str = "",
    b: bool = False,
    o: int | None = None,
    u: int | str | None = None,
    lit: Literal["a", 1] = "a",
    colour: Colour = Colour.RED,
    limit: Annotated[int, Field(ge=1, le=50)] = 5,
    ints: list[int] = [],  # noqa: B006
    table: dict[str, float] = {},  # noqa: B006
    keys: dict[int, int] = {},  # noqa: B006
    pair: tuple[int, str] = (1, ""),
    many: set[str] = frozenset(),  # type: ignore[assignment]
    point: Point = Point(1),  # noqa: B008
    row: Row = {"id": 1},  # noqa: B006
    named: Pair = Pair(1),  # noqa: B008
    model: Model | None = None,
    struct: Struct | None = None,
    uid: UUID | str = "",
    when: dt.datetime | dt.date | None = None,
    clock: dt.time | None = None,
    span: dt.timedelta | None = None,
    money: Decimal = Decimal(0),
    path: Path = Path(),
    anything: Any = None,
) -> None: ...


PARAMETERS = compile_parameters(everything, is_injected=lambda annotation: False)
REFERENCE = jsonschema_rs.validator_for(PARAMETERS.schema, validate_formats=False)
NAMES = list(PARAMETERS.schema["properties"])

INTERESTING = st.sampled_from(
    [
        *(2**53, 2.0**53, 2**63, 2**64 - 1, 1e17, 1e300, -0.0),
        *("1E+5", "NaN", "2024-02-30", "PT", "2024-05-01", "25:61", "P99999999999D", "9" * 400),
        *("", "a", "\x00", "🛫", "12345678-1234-5678-1234-567812345678"),
    ]
)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=10) | INTERESTING
KEYS = st.sampled_from(["x", "y", "id", "name", "when", "inner", "n", "tags", "1"]) | st.text(max_size=5)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
ARGUMENTS = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=6), JSON, max_size=5)


def refusal(run: Callable[[Any], Any], value: Any) -> str | None:
    """Return the message of an ArgumentError; None without one."""
    try:
        run(value)
    except ArgumentError as error:
        assert 0 < len(str(error)) <= 1010  # noqa: PT017 - any other exception is the failure looked for
        return str(error)
    return None


@given(ARGUMENTS | JSON)
def test_check_agrees_with_the_advertised_schema(arguments: Any) -> None:
    assert (refusal(PARAMETERS.check, arguments) is None) == REFERENCE.is_valid(arguments)


@given(ARGUMENTS | JSON)
def test_convert_refuses_hostile_input_with_an_argument_error_only(arguments: Any) -> None:
    if refusal(PARAMETERS.convert, arguments) is None:
        assert PARAMETERS.convert(arguments).keys() <= set(NAMES)


@given(st.sampled_from(NAMES).flatmap(lambda name: st.tuples(st.just(name), JSON)))
def test_a_checked_and_converted_value_has_the_annotated_type(argument: tuple[str, Any]) -> None:
    name, value = argument
    arguments = {name: value}
    try:
        PARAMETERS.check(arguments)
        converted = PARAMETERS.convert(arguments)[name]
    except ArgumentError:
        return
    plain = {"i": int, "f": float, "s": str, "b": bool, "ints": list, "pair": tuple, "point": Point, "named": Pair}
    if name in plain:
        assert type(converted) is plain[name]
    if name == "i":
        assert -(2**63) <= converted < 2**63
        assert converted == value


RETURNS = [int, float, str, bool, list[int], dict[str, float], Point | None, Point, Row, Pair, Model, Decimal, Any]


@given(st.sampled_from(RETURNS), JSON | st.decimals() | st.floats())
def test_a_structured_result_fits_its_schema_or_is_an_output_error(annotation: Any, value: Any) -> None:
    def tool() -> None: ...

    tool.__annotations__["return"] = annotation
    output = compile_output(tool, is_content=lambda it: False)
    if output is None:
        return
    try:
        structured = output.to_structured(value)
    except OutputError:
        return
    jsonschema_rs.validator_for(output.schema).validate(structured)
    json.dumps(structured, allow_nan=False)


@given(st.sampled_from([bool, int, Colour, list[Literal["a"]], Point]), JSON)
def test_an_answer_to_a_form_is_read_or_refused_with_a_message(type_: Any, content: Any) -> None:
    refusal(build_form(type_).read, content)


@given(JSON)
def test_json_is_its_own_json_form(value: Any) -> None:
    assert to_json(value) == value


DOCS = st.lists(
    st.sampled_from(["Args:", "Parameters", "----------", ":param a: b", "    a: b", "a : int", "Raises:", "", "Text."])
    | st.text(string.printable, max_size=12),
    max_size=12,
).map("\n".join)


@given(DOCS)
def test_any_docstring_is_parsed_without_an_exception(text: str) -> None:
    parsed = parse_docstring(text)
    assert isinstance(parsed.summary, str)
    assert all(isinstance(part, str) for item in parsed.parameters.items() for part in item)

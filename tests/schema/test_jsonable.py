"""Anything a handler returns, as JSON."""

import datetime as dt
import enum
import json
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel, Field

from mcp_django.schema import to_json, to_json_schema


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int


class Pair(NamedTuple):
    left: int


class Model(BaseModel):
    n: int = Field(alias="number")


class Struct(msgspec.Struct):
    when: dt.date


def test_a_value_becomes_json(subtests: pytest.Subtests) -> None:
    cases = [
        (None, None),
        ("x", "x"),
        (5, 5),
        (1.5, 1.5),
        (True, True),
        ([1, (2, {3})], [1, [2, [3]]]),
        ({"a": {1: Point(2)}}, {"a": {"1": {"x": 2}}}),
        (Point(1), {"x": 1}),
        (Pair(1), [1]),
        (Model(number=1), {"number": 1}),
        (Struct(dt.date(2024, 5, 1)), {"when": "2024-05-01"}),
        ([Struct(dt.date(2024, 5, 1))], [{"when": "2024-05-01"}]),
        (Decimal("1.10"), "1.10"),
        (uuid.UUID(int=0), "00000000-0000-0000-0000-000000000000"),
        (dt.datetime(2024, 5, 1, tzinfo=dt.UTC), "2024-05-01T00:00:00Z"),
        (dt.time(10, 30), "10:30:00"),
        (dt.timedelta(hours=1), "PT1H"),
        (Colour.RED, "red"),
        (frozenset({"a"}), ["a"]),
        (Path("a/b"), "a/b"),
        (b"\xff\x00", "_wA="),
        (OrderedDict(a=1), {"a": 1}),
        ((n for n in range(2)), [0, 1]),
    ]
    for value, expected in cases:
        with subtests.test(value=value, expected=expected):
            result = to_json(value)
            assert result == expected
            json.dumps(result)


def test_lazy_text_is_written_out() -> None:
    lazystr = pytest.importorskip("django.utils.functional").lazystr
    assert to_json({"a": [lazystr("Hello")]}) == {"a": ["Hello"]}
    assert to_json(lazystr("Hello")) == "Hello"


def test_a_value_without_json_form_is_a_type_error(subtests: pytest.Subtests) -> None:
    for value in [object(), [object()], {"a": len}, 1j.conjugate, Exception("x")]:
        with subtests.test(value=value), pytest.raises(TypeError, match="JSON"):
            to_json(value)


def test_a_value_that_contains_itself_is_a_type_error() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="list has no JSON form"):
        to_json(endless)


def test_the_values_of_a_generated_schema_become_json() -> None:
    lazystr = pytest.importorskip("django.utils.functional").lazystr
    schema = {
        "type": "object",
        "properties": {
            "size": {"type": "number", "minimum": Decimal("0.5"), "maximum": Decimal(90), "default": Decimal("1.50")},
            "colour": {"enum": (lazystr("red"), Colour.RED, None), "description": lazystr("A colour")},
            "minimum": {"type": "string", "title": lazystr("Least")},
        },
    }
    assert to_json_schema(schema)["properties"] == {
        "size": {"type": "number", "minimum": 0.5, "maximum": 90, "default": "1.50"},
        "colour": {"enum": ["red", to_json(Colour.RED), None], "description": "A colour"},
        "minimum": {"type": "string", "title": "Least"},
    }


def test_values_without_json_form_are_kept_for_the_schema_check() -> None:
    strange = object()
    shared: Any = []
    for _ in range(100):
        shared = [shared, shared]
    found = to_json_schema({"default": strange, "examples": shared})
    assert found["default"] is strange
    assert len(found["examples"]) == 2
    endless: dict[str, Any] = {}
    endless |= {"a": endless, "b": endless}
    assert to_json_schema(endless)["a"] is endless

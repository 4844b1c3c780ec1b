"""Types as forms for people, and their answers as values."""

import datetime as dt
import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema_rs
import msgspec
import pytest
from pydantic import BaseModel, Field, SecretStr

from mcp_django.schema import DeclarationError, build_form


class Colour(enum.Enum):
    RED = "red"
    SKY_BLUE = "#00f"


class Same(enum.Enum):
    LOW = "low"
    HIGH = "HIGH"


class Priority(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Labelled(enum.Enum):
    EUR = "eur"

    @property
    def label(self) -> str:
        return "Euro €"


@dataclass
class Profile:
    """Who you are.

    Attributes:
        name: As in your passport.
    """

    name: str
    age: int = 30
    score: float = 95.5
    verified: bool = True
    colour: Colour = Colour.RED
    tags: list[Literal["a", "b"]] = field(default_factory=lambda: ["a"])


class Row(TypedDict):
    id: int
    note: NotRequired[str]


class Booking(BaseModel):
    seats: Annotated[int, Field(gt=0, le=9, title="Seats", description="How many")]
    day: dt.date
    email: Annotated[str, Field(json_schema_extra={"format": "email"})] = ""
    budget: Decimal | None = None


class Struct(msgspec.Struct):
    n: int


def only(type_: Any) -> Any:
    form = build_form(type_)
    assert list(form.schema["properties"]) == ["value"]
    return form.schema["properties"]["value"]


def test_none_is_a_form_without_fields() -> None:
    form = build_form(None)
    assert form.schema == {"type": "object", "properties": {}}
    assert form.read({}) is None
    assert form.read(None) is None


def test_a_single_value_is_a_form_with_one_property(subtests: pytest.Subtests) -> None:
    cases = [
        (bool, {"type": "boolean"}, True, True),
        (str, {"type": "string"}, "x", "x"),
        (int, {"type": "integer"}, 5.0, 5),
        (float, {"type": "number"}, 5, 5.0),
        (Decimal, {"type": "number"}, 0.1, Decimal("0.1")),
        (dt.date, {"type": "string", "format": "date"}, "2024-05-01", dt.date(2024, 5, 1)),
        (dt.time, {"type": "string"}, "10:30", dt.time(10, 30)),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
        (Literal["a"], {"type": "string", "enum": ["a"]}, "a", "a"),
        (Literal[1, 2], {"type": "string", "enum": ["1", "2"]}, "2", 2),
        (Same, {"type": "string", "enum": ["low", "HIGH"]}, "low", Same.LOW),
        (
            Colour,
            {"type": "string", "oneOf": [{"const": "red", "title": "red"}, {"const": "#00f", "title": "Sky blue"}]},
            "#00f",
            Colour.SKY_BLUE,
        ),
        (
            Priority,
            {"type": "string", "oneOf": [{"const": "1", "title": "Low"}, {"const": "2", "title": "High"}]},
            "2",
            Priority.HIGH,
        ),
        (Labelled, {"type": "string", "oneOf": [{"const": "eur", "title": "Euro €"}]}, "eur", Labelled.EUR),
        (
            list[Literal["a", "b"]],
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            ["b", "a"],
            ["b", "a"],
        ),
        (
            list[Priority],
            {"type": "array", "items": {"anyOf": [{"const": "1", "title": "Low"}, {"const": "2", "title": "High"}]}},
            ["1"],
            [Priority.LOW],
        ),
        (
            Annotated[set[Literal["a", "b"]], Field(min_length=1, max_length=2)],
            {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["a", "b"]}},
            ["a"],
            {"a"},
        ),
        (Annotated[int, Field(gt=0, lt=10)], {"type": "integer", "minimum": 1, "maximum": 9}, 3, 3),
        (Annotated[str, Field(max_length=3)], {"type": "string", "maxLength": 3}, "abc", "abc"),
    ]
    for type_, expected, given, value in cases:
        with subtests.test(type_=type_):
            form = build_form(type_)
            assert form.schema == {"type": "object", "properties": {"value": expected}, "required": ["value"]}
            read = form.read({"value": given})
            assert read == value
            assert type(read) is type(value)


def test_an_optional_value_may_be_left_empty() -> None:
    form = build_form(int | None)
    assert "required" not in form.schema
    assert [form.read(content) for content in ({}, {"value": None}, {"value": 3})] == [None, None, 3]


def test_a_dataclass_becomes_a_flat_form_with_defaults() -> None:
    form = build_form(Profile)
    assert form.schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "As in your passport."},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "verified": {"type": "boolean", "default": True},
            "colour": {
                "type": "string",
                "oneOf": [{"const": "red", "title": "red"}, {"const": "#00f", "title": "Sky blue"}],
                "default": "red",
            },
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a"]},
        },
        "required": ["name"],
    }
    assert form.read({"name": "Ada", "colour": "#00f"}) == Profile("Ada", colour=Colour.SKY_BLUE)


def test_defaults_of_choices_have_the_form_of_the_choices() -> None:
    class Plan(BaseModel):
        level: Priority = Priority.HIGH
        levels: list[Priority] = [Priority.LOW]
        both: list[Literal[True, False]] = [True]

    form = build_form(Plan)
    defaults = {name: entry["default"] for name, entry in form.schema["properties"].items()}
    assert defaults == {"level": "2", "levels": ["1"], "both": ["true"]}
    assert form.read({"both": ["false"]}) == Plan(both=[False])


def test_a_type_with_unhashable_metadata_is_a_form() -> None:
    assert build_form(Annotated[int, {"a": 1}]).read({"value": 1}) == 1


def test_a_typed_dict_has_the_filled_fields() -> None:
    assert build_form(Row).read({"id": 1}) == {"id": 1}
    assert build_form(Row).schema["required"] == ["id"]


def test_a_struct_is_a_form() -> None:
    assert build_form(Struct).read({"n": 1}) == Struct(1)


def test_a_model_becomes_a_form_with_its_texts_and_limits() -> None:
    form = build_form(Booking)
    assert form.schema["properties"] == {
        "seats": {"type": "integer", "title": "Seats", "description": "How many", "minimum": 1, "maximum": 9},
        "day": {"type": "string", "format": "date"},
        "email": {"type": "string", "format": "email", "default": ""},
        "budget": {"type": "number"},
    }
    assert form.schema["required"] == ["seats", "day"]
    booking = form.read({"seats": 2, "day": "2024-05-01", "budget": None})
    assert booking == Booking(seats=2, day=dt.date(2024, 5, 1))


def test_forms_are_valid_schemas(subtests: pytest.Subtests) -> None:
    for type_ in [bool, Profile, Booking, Row, list[Colour], Colour, None]:
        with subtests.test(type_=type_):
            jsonschema_rs.meta.validate(build_form(type_).schema)


def test_an_answer_that_violates_the_form_is_refused_with_a_message(subtests: pytest.Subtests) -> None:
    cases = [
        (bool, {}, "missing field 'value'"),
        (bool, {"value": "yes"}, 'value: "yes" is a string; give true or false'),
        (int, {"value": True}, "value: is a boolean; give an integer"),
        (int, {"value": 2.0**60}, "must be an exact integer"),
        (Annotated[float, Field(gt=0)], {"value": 0}, "value: 0 must be greater than 0"),
        (Literal[1, 2], {"value": 2}, "value: 2 is an integer; give a string"),
        (Colour, {"value": "green"}, 'value: "green" '),
        (list[Literal["a"]], {"value": ["a", "b"]}, r'value\[1\]: "b" is not one of "a"'),
        (Profile, {}, "missing field 'name'"),
        (Booking, {"seats": 10, "day": "2024-05-01"}, "seats: 10 is greater than the maximum of 9"),
        (Booking, {"seats": 1, "day": "soon"}, 'day: "soon" must be a valid date'),
        (bool, [True], "the content of a form must be an object"),
        (bool, "yes", "the content of a form must be an object"),
    ]
    for type_, content, text in cases:
        with subtests.test(type_=type_, content=content, text=text), pytest.raises(ValueError, match=text):
            build_form(type_).read(content)


def test_secrets_in_a_form_are_refused(subtests: pytest.Subtests) -> None:
    cases = [
        {"type": "object", "properties": {"a": {"type": "string", "format": "password"}}},
        SecretStr,
        Annotated[str, Field(json_schema_extra={"writeOnly": True})],
    ]
    for secret in cases:
        with subtests.test(secret=secret), pytest.raises(DeclarationError, match=r"ctx\.elicit_url"):
            build_form(secret)


def test_fields_the_form_does_not_have_are_ignored() -> None:
    assert build_form(bool).read({"value": True, "username": "x"}) is True


@dataclass
class Deep:
    inner: Profile


@dataclass
class Listed:
    names: list[str]


def test_a_nested_form_is_refused(subtests: pytest.Subtests) -> None:
    cases = [Deep, Listed, list[int], dict[str, int], tuple[int, int], int | str, Any]
    for type_ in cases:
        with subtests.test(type_=type_), pytest.raises(DeclarationError, match="does not fit a form"):
            build_form(type_)


def test_a_handwritten_schema_is_sent_and_checked_unchanged() -> None:
    schema = {
        "type": "object",
        "properties": {"c": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}, "n": {"type": "integer"}},
        "required": ["c"],
    }
    form = build_form(schema)
    assert form.schema == schema
    assert form.read({"c": "a", "other": 1}) == {"c": "a"}
    with pytest.raises(ValueError, match="missing field 'c'"):
        form.read({})


def test_a_handwritten_schema_must_be_flat(subtests: pytest.Subtests) -> None:
    cases = [
        {"a": {"type": "object"}},
        {"a": {"type": "array", "items": {"type": "string"}}},
        {"a": {"type": "array"}},
        {"a": True},
        {"a": {}},
    ]
    for properties in cases:
        with (
            subtests.test(properties=properties),
            pytest.raises(DeclarationError, match="form: property 'a' must be a string"),
        ):
            build_form({"type": "object", "properties": properties})


def test_a_handwritten_schema_is_not_mutated() -> None:
    schema = {"type": "object"}
    assert build_form(schema).read({}) == {}
    assert schema == {"type": "object"}


def test_a_type_is_compiled_once() -> None:
    assert build_form(Profile) is build_form(Profile)
    assert build_form(bool) is not build_form(int)

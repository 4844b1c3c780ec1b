"""Writing of columns whose forms are not plain: choices, and defaults that the database makes."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django import forms

from mcp_django import ModelToolset
from tests.orm.writing import as_user, get_error, get_result, user
from tests.server.client import PipelineClient
from tests.shop.models import Parcel

pytestmark = pytest.mark.django_db


class Parcels(ModelToolset):
    model = Parcel
    fields = ["label", "weight", "mood", "grade", "wrap", "fee", "state", "rank", "made"]
    list_filter = "__all__"
    tools = ("describe", "list", "get", "create", "update", "delete")
    app = True


def get_schemas(client: PipelineClient, tool: str, argument: str = "values") -> dict[str, Any]:
    """Return the schemas of the values that a tool takes."""
    listed = async_to_sync(client.request)("tools/list")["tools"]
    found: dict[str, Any] = {one["name"]: one for one in listed}[tool]["inputSchema"]["properties"][argument]
    return found


def test_choices_are_unique_values_with_labels_in_the_description() -> None:
    values = get_schemas(as_user(user(), Parcels), "parcel_create")["properties"]
    assert values["mood"] == {
        "title": "Mood",
        "anyOf": [{"type": "string", "enum": ["calm", "wild", ""]}, {"type": "null"}],
        "description": "calm: Calm; wild: Wild",
    }
    assert values["grade"] == {
        "title": "Grade",
        "type": "integer",
        "enum": [1, 2, 3],
        "description": "1: Odd: Odd first; 2: Good: Second; 3: Odd: Third",
    }
    assert values["wrap"]["anyOf"] == [{"type": "string", "enum": ["box", ""]}, {"type": "null"}]
    assert values["wrap"]["description"] == 'box: In a box; "": Bare'
    assert (values["fee"]["type"], values["fee"]["enum"]) == ("string", ["0.50", "1.00"])


def test_each_choice_that_a_schema_lists_is_written_and_shown_as_it_is_written(subtests: pytest.Subtests) -> None:
    client = as_user(user(), Parcels)
    parcel = Parcel.objects.create(label="a", weight=1)
    for name, schema in get_schemas(client, "parcel_update")["properties"].items():
        branches = schema.get("anyOf", [schema])
        values = [value for branch in branches for value in branch.get("enum", [])]
        for value in [*values, *([None] if {"type": "null"} in branches else [])]:
            with subtests.test(name=name, value=value):
                item = get_result(client, "parcel_update", pk=parcel.pk, values={name: value})["item"]
                assert item[name] == value or (not item[name] and not value)


def test_choices_are_the_same_for_filters_descriptions_and_forms() -> None:
    client = as_user(user(), Parcels)
    filters = get_schemas(client, "parcel_list", "filters")["properties"]
    assert filters["grade"] == {"type": "integer", "enum": [1, 2, 3]}
    assert filters["mood"] == {"type": "string", "enum": ["calm", "wild"]}
    Parcel.objects.create(label="a", weight=1, grade=3)
    assert len(get_result(client, "parcel_list", filters={"grade": 3, "mood": None})["items"]) == 1

    shown = {one["name"]: one for one in get_result(client, "parcel_create_form")["fields"]}
    described = {one["name"]: one for one in get_result(client, "parcel_describe")["fields"]}
    assert shown["grade"]["choices"] == described["grade"]["choices"]
    assert described["grade"]["choices"] == [
        {"value": 1, "label": "Odd: Odd first"},
        {"value": 2, "label": "Good: Second"},
        {"value": 3, "label": "Odd: Third"},
    ]


def test_a_form_with_fewer_choices_offers_fewer() -> None:
    class ParcelForm(forms.ModelForm):  # type: ignore[type-arg]
        grade = forms.TypedChoiceField(coerce=int, choices=[(2, "Second"), (9, "Not a grade")])
        state = forms.ChoiceField(choices=[("new", "New"), ("old", "Old")])
        reason = forms.ChoiceField(choices=[("Good", [("a", "As ordered")]), ("Bad", [("a", "As sent"), ("b", "b")])])

        class Meta:
            model = Parcel
            fields = ("grade", "state", "reason", "weight", "label")

    class Formed(Parcels):
        form = ParcelForm

    values = get_schemas(as_user(user(), Formed), "parcel_create")["properties"]
    assert (values["grade"]["enum"], values["state"]["enum"]) == ([2], ["new", "old"])
    assert values["reason"] == {
        "title": "reason",
        "type": "string",
        "enum": ["a", "b"],
        "description": "a: Bad: As sent; b: Bad: b",
    }


def test_choices_of_a_callable_that_only_a_form_declares_are_left_to_the_form() -> None:
    def list_states() -> list[tuple[str, str]]:
        raise AssertionError("a schema is the same for all callers")

    class ParcelForm(forms.ModelForm):  # type: ignore[type-arg]
        state = forms.ChoiceField(choices=list_states)

        class Meta:
            model = Parcel
            fields = ("state",)

    class Formed(Parcels):
        form = ParcelForm

    values = get_schemas(as_user(user(), Formed), "parcel_update")["properties"]
    assert values["state"]["type"] == "string"


def test_null_is_refused_where_a_row_needs_a_value(subtests: pytest.Subtests) -> None:
    client = as_user(user(), Parcels)
    parcel = Parcel.objects.create(label="a", weight=1)
    for name in ("label", "weight", "grade", "fee", "state", "rank", "made"):
        with subtests.test(name=name):
            assert name in get_error(client, "parcel_update", pk=parcel.pk, values={name: None})


def test_values_that_the_database_makes_may_be_omitted_and_are_returned() -> None:
    client = as_user(user(), Parcels)
    schema = get_schemas(client, "parcel_create")
    assert schema["required"] == ["label", "weight"]
    assert schema["properties"]["state"]["description"] == "In a new row, the database sets it if it is omitted"

    for dry_run in (True, False):
        item = get_result(client, "parcel_create", values={"label": "a", "weight": 1}, dry_run=dry_run)["item"]
        assert (item["state"], item["rank"]) == ("new", 7)
        assert dt.datetime.fromisoformat(item["made"]).year > 2000
    values = {"label": "b", "weight": 1, "state": "old", "rank": 8, "made": "2026-01-31T12:00:00Z"}
    item = get_result(client, "parcel_create", values=values)["item"]
    assert (item["state"], item["rank"], item["fee"]) == ("old", 8, "1.00")
    assert Parcel.objects.get(label="b").made == dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    assert Parcel.objects.get(label="a").fee == Decimal(1)


def test_an_update_keeps_the_values_that_the_database_made() -> None:
    client = as_user(user(), Parcels)
    parcel = Parcel.objects.create(label="a", weight=1, state="old", rank=9)
    result = get_result(client, "parcel_update", pk=parcel.pk, values={"weight": 2})
    assert (result["changed"], result["item"]["state"], result["item"]["rank"]) == (["weight"], "old", 9)

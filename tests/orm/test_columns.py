"""Writing of columns whose forms are not plain: choices, and defaults that the database makes."""

import datetime as dt
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from asgiref.sync import async_to_sync
from django import forms

from mcp_django import ModelToolset
from tests.orm.writing import as_user, get_error, get_field_errors, get_result, user
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


def test_a_form_with_fewer_choices_lists_fewer() -> None:
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


def test_generated_values_may_be_omitted_and_are_returned() -> None:
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


def test_an_update_keeps_generated_values() -> None:
    client = as_user(user(), Parcels)
    parcel = Parcel.objects.create(label="a", weight=1, state="old", rank=9)
    result = get_result(client, "parcel_update", pk=parcel.pk, values={"weight": 2})
    assert (result["changed"], result["item"]["state"], result["item"]["rank"]) == (["weight"], "old", 9)


class TwoPartsWidget(forms.MultiWidget):
    def __init__(self) -> None:
        super().__init__([forms.NumberInput(), forms.TextInput()])

    def decompress(self, value: Any) -> list[Any]:
        return [None, None] if value is None else [value.amount, value.unit]


class Measure(NamedTuple):
    amount: int
    unit: str


class MeasureField(forms.MultiValueField):
    widget = TwoPartsWidget

    def __init__(self, **given: Any) -> None:
        super().__init__([forms.IntegerField(), forms.ChoiceField(choices=[("g", "Gram"), ("t", "Ton")])], **given)

    def compress(self, data_list: Any) -> Measure | None:
        return Measure(*data_list) if data_list else None


class MeasureAttribute:
    """The attribute of a column of two values, such as an amount and its unit."""

    def __get__(self, row: Any, owner: Any = None) -> Any:
        if row is None:
            return self
        amount = vars(row)["weight"]
        return amount if amount is None else Measure(amount, vars(row)["state"])

    def __set__(self, row: Any, value: Any) -> None:
        if isinstance(value, Measure):
            vars(row).update(weight=value.amount, state=value.unit)
        elif isinstance(value, int) and value > 1000:
            raise ValueError("too heavy")
        else:
            vars(row)["weight"] = value


@pytest.fixture
def measured_parcels(monkeypatch: pytest.MonkeyPatch) -> PipelineClient:
    class MeasuredForm(forms.ModelForm):  # type: ignore[type-arg]
        weight = MeasureField()
        due = forms.SplitDateTimeField(required=False)

        class Meta:
            model = Parcel
            fields = ("label", "weight", "due")

    class Measured(Parcels):
        form = MeasuredForm
        app = False

        def save_model(self, ctx: Any, obj: Any, form: Any, change: bool) -> None:
            obj.label = f"{obj.label} {form.cleaned_data['due']:%d.%m.%Y}" if form.cleaned_data["due"] else obj.label
            super().save_model(ctx, obj, form, change)

    monkeypatch.setattr(Parcel, "weight", MeasureAttribute())
    monkeypatch.setattr(Parcel._meta.get_field("weight"), "clean", lambda value, row: value)
    monkeypatch.setattr(
        Parcel._meta.get_field("weight"), "get_db_prep_save", lambda value, connection: getattr(value, "amount", value)
    )
    return as_user(user(), Measured)


def test_a_value_of_several_parts_is_written_as_one_value_or_as_its_parts(measured_parcels: PipelineClient) -> None:
    client = measured_parcels
    parcel = Parcel.objects.create(label="a", weight=1, state="t")
    assert get_result(client, "parcel_update", pk=parcel.pk, values={"weight": 5})["item"]["weight"] == 5
    assert Parcel.objects.filter(weight=5, state="t").exists()
    get_result(client, "parcel_update", pk=parcel.pk, values={"weight": [7, "g"]})
    assert Parcel.objects.filter(weight=7, state="g").exists()


def test_problems_of_the_parts_are_errors_of_their_field(measured_parcels: PipelineClient) -> None:
    client = measured_parcels
    parcel = Parcel.objects.create(label="a", weight=1, state="t")
    for value, text in (([7, "x"], "Select a valid choice"), (2000, "too heavy")):
        errors = get_field_errors(client, "parcel_update", pk=parcel.pk, values={"weight": value})
        assert text in errors["weight"][0]


def test_a_field_of_two_parts_that_only_the_form_has_is_written(measured_parcels: PipelineClient) -> None:
    parcel = Parcel.objects.create(label="a", weight=1, state="t")
    values = {"due": "2026-01-31T12:00:00Z"}
    item = get_result(measured_parcels, "parcel_update", pk=parcel.pk, values=values)["item"]
    assert item["label"] == "a 31.01.2026"


def test_values_that_the_database_rejects_are_errors_of_their_shown_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hasty(Parcels):
        def save_model(self, ctx: Any, obj: Any, form: Any, change: bool) -> None:
            if obj.label == "no weight":
                obj.weight = None
            super().save_model(ctx, obj, form, change)

    client = as_user(user(), Hasty)
    get_result(client, "parcel_create", values={"label": "a", "weight": 1})
    errors = get_field_errors(client, "parcel_create", values={"label": "b", "weight": 1})
    assert errors == {"rank": ["Parcel with this Rank already exists."]}
    errors = get_field_errors(client, "parcel_create", values={"label": "no weight", "weight": 1, "rank": 8})
    assert errors == {"weight": ["This field cannot be null."]}


def test_columns_that_are_not_shown_are_never_named(caplog: pytest.LogCaptureFixture) -> None:
    class Labels(ModelToolset):
        model = Parcel
        fields = ("label",)
        tools = ("create",)

    text = get_error(as_user(user(), Labels), "parcel_create", values={"label": "a"})
    assert "a column that clients cannot write requires a value" in text
    assert "weight" not in text
    assert "shop_parcel.weight" in caplog.text

    class Heavy(Labels):
        fields = ("label", "weight")

    client = as_user(user("tim"), Heavy)
    get_result(client, "parcel_create", values={"label": "a", "weight": 1})
    text = get_error(client, "parcel_create", values={"label": "b", "weight": 1})
    assert "a value conflicts with another row" in text
    assert "rank" not in text


class LimitedInput(forms.NumberInput):
    limit = 10


class LimitedField(forms.IntegerField):
    """A field whose validation asks its own widget, such as those of some JSON editors."""

    widget = LimitedInput

    def clean(self, value: Any) -> Any:
        number = super().clean(value)
        if number > self.widget.limit:
            raise forms.ValidationError("too heavy")
        return number


class NoneForEmptyField(forms.CharField):
    """A field that makes None of an omitted text, such as those of recurrences."""

    def clean(self, value: Any) -> Any:
        return super().clean(value) or None


def test_a_form_field_keeps_its_widget_and_an_omitted_one_keeps_the_default_of_the_model() -> None:
    class ParcelForm(forms.ModelForm):  # type: ignore[type-arg]
        weight = LimitedField()
        wrap = NoneForEmptyField(required=False)

        class Meta:
            model = Parcel
            fields = ("label", "weight", "wrap")

    class Formed(Parcels):
        form = ParcelForm

    client = as_user(user(), Formed)
    errors = get_field_errors(client, "parcel_create", values={"label": "a", "weight": 11})
    assert errors == {"weight": ["too heavy"]}
    item = get_result(client, "parcel_create", values={"label": "a", "weight": 9})["item"]
    assert (item["weight"], item["wrap"]) == (9, "")

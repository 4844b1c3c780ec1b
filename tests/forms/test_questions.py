"""Django forms as questions: the requested schema, and the bound form of the answer."""

import datetime as dt
import itertools
import uuid
from decimal import Decimal
from typing import Any

import jsonschema_rs
import pytest
from django import forms
from django.contrib.auth import get_user_model
from django.forms import formset_factory
from django.utils.translation import gettext_lazy, override

from mcp_django.forms.fields import MAX_CHOICES
from mcp_django.forms.questions import DjangoFormQuestion, get_form_question_factory
from mcp_django.schema import ArgumentError, DeclarationError
from mcp_django.server.context.conversation import InputUnavailable
from tests.testapp.models import Book


def ask(form: Any) -> DjangoFormQuestion:
    compile_form = get_form_question_factory(form)
    assert compile_form is not None
    return compile_form()


def form_with(field: forms.Field) -> type[forms.Form]:
    """A form of one field."""
    return type("One", (forms.Form,), {"value": field})


def only(field: forms.Field) -> dict[str, Any]:
    """The property that a field becomes."""
    properties: dict[str, Any] = ask(form_with(field)).schema["properties"]
    assert properties["value"].pop("title") == "Value"
    return properties["value"]


def cleaned(field: forms.Field, given: Any) -> Any:
    return ask(form_with(field)).read({"value": given})[0]["value"]


def refused(form: Any, content: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        ask(form).read(content)
    return str(caught.value)


class BookingForm(forms.Form):
    """A form with most features of forms."""

    guest = forms.CharField(label="Name of the guest", max_length=20, help_text="As in the <b>passport</b>")
    nights = forms.IntegerField(min_value=1, max_value=30, initial=2)
    meals = forms.ChoiceField(choices=[("", "---"), ("half", "Half board"), ("full", "Full board")], required=False)
    until = forms.DateField(required=False)

    def clean(self) -> Any:
        if self.cleaned_data.get("nights") == 13:
            raise forms.ValidationError("Thirteen nights bring bad luck")
        return super().clean()


def test_a_form_is_asked_with_its_labels_help_texts_initial_values_and_rules() -> None:
    assert ask(BookingForm).schema == {
        "type": "object",
        "properties": {
            "guest": {
                "type": "string",
                "title": "Name of the guest",
                "description": "As in the passport",
                "minLength": 1,
                "maxLength": 20,
            },
            "nights": {"type": "integer", "title": "Nights", "minimum": 1, "maximum": 30, "default": 2},
            "meals": {
                "type": "string",
                "title": "Meals",
                "oneOf": [{"const": "half", "title": "Half board"}, {"const": "full", "title": "Full board"}],
            },
            "until": {"type": "string", "title": "Until", "format": "date"},
        },
        "required": ["guest", "nights"],
    }
    jsonschema_rs.meta.validate(ask(BookingForm).schema)


def test_the_answer_has_cleaned_data_and_the_bound_form() -> None:
    data, bound = ask(BookingForm).read({"guest": " Ada ", "nights": 3, "meals": "half", "until": "2030-05-01"})
    assert data == {"guest": "Ada", "nights": 3, "meals": "half", "until": dt.date(2030, 5, 1)}
    assert isinstance(bound, BookingForm)
    assert bound.is_valid()
    assert bound.cleaned_data is data


def test_errors_name_their_fields() -> None:
    text = refused(BookingForm, {"guest": "x" * 21, "nights": 99, "meals": "quarter"})
    lines = text.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["Name of the guest", "Nights", "Meals"]
    assert "at most 20 characters" in lines[0]
    assert "less than or equal to 30" in lines[1]


def test_errors_of_the_whole_form_name_no_field() -> None:
    assert refused(BookingForm, {"guest": "Ada", "nights": 13}) == "Thirteen nights bring bad luck"


def test_a_required_field_that_is_left_out_is_named() -> None:
    assert refused(BookingForm, {"nights": 1}).startswith("Name of the guest:")


def test_a_value_of_another_type_is_not_converted_to_text(subtests: pytest.Subtests) -> None:
    cases = [{"guest": ["Ada"]}, {"guest": {"$ne": 1}}, {"guest": 7}, {"guest": True}]
    for wrong in cases:
        with subtests.test(wrong=wrong):
            assert "must be of type string" in refused(BookingForm, {"nights": 1, **wrong})


def test_content_that_is_no_object_is_refused(subtests: pytest.Subtests) -> None:
    for content in [7, [], "text", None]:
        with subtests.test(content=content):
            assert refused(BookingForm, content) == "the content of a form must be an object"


def test_omitted_fields_keep_their_initial_value_and_cleared_ones_are_empty() -> None:
    form = BookingForm(initial={"until": dt.date(2030, 1, 1)})
    assert ask(form).read({"guest": "Ada"})[0] == {
        "guest": "Ada",
        "nights": 2,
        "meals": "",
        "until": dt.date(2030, 1, 1),
    }
    assert ask(form).read({"guest": "Ada", "until": None})[0]["until"] is None
    assert ask(form).read({"guest": "Ada", "until": ""})[0]["until"] is None
    assert refused(form, {"guest": "Ada", "nights": None}).startswith("Nights:")


def test_unknown_fields_are_ignored() -> None:
    assert "is_staff" not in ask(BookingForm).read({"guest": "Ada", "is_staff": True})[0]


class Colour(forms.Form):
    KNOWN = [("Warm", [("r", "Red"), ("o", "Orange")]), ("b", "Blue")]


TITLED = [("r", "Red"), ("b", "Blue")]


def test_a_field_becomes_a_property_and_its_answer_a_value(subtests: pytest.Subtests) -> None:
    cases = [
        (forms.CharField(required=False), {"type": "string"}, "x", "x"),
        (forms.EmailField(required=False), {"type": "string", "format": "email", "maxLength": 320}, "a@b.co", "a@b.co"),
        (
            forms.URLField(required=False, assume_scheme="https"),
            {"type": "string", "format": "uri"},
            "https://a.example/",
            "https://a.example/",
        ),
        (forms.SlugField(), {"type": "string", "minLength": 1}, "a-b", "a-b"),
        (forms.UUIDField(), {"type": "string", "minLength": 1}, str(uuid.UUID(int=5)), uuid.UUID(int=5)),
        (forms.IntegerField(max_value=9), {"type": "integer", "maximum": 9}, 3.0, 3),
        (forms.FloatField(min_value=0.5), {"type": "number", "minimum": 0.5}, 1, 1.0),
        (forms.DecimalField(max_value=Decimal("9.5")), {"type": "number", "maximum": 9.5}, 0.1, Decimal("0.1")),
        (forms.BooleanField(required=False), {"type": "boolean"}, True, True),
        (forms.BooleanField(required=False), {"type": "boolean"}, False, False),
        (forms.NullBooleanField(), {"type": "boolean"}, False, False),
        (forms.DateField(), {"type": "string", "format": "date"}, "2030-05-01", dt.date(2030, 5, 1)),
        (
            forms.DateTimeField(),
            {"type": "string", "format": "date-time"},
            "2030-05-01T10:00:00+02:00",
            dt.datetime(2030, 5, 1, 8, tzinfo=dt.UTC),
        ),
        (
            forms.SplitDateTimeField(),
            {"type": "string", "format": "date-time"},
            "2030-05-01T10:00:00+02:00",
            dt.datetime(2030, 5, 1, 8, tzinfo=dt.UTC),
        ),
        (forms.TimeField(help_text="When"), {"type": "string", "description": "When"}, "10:30", dt.time(10, 30)),
        (
            forms.DurationField(help_text="How long"),
            {"type": "string", "description": "How long"},
            "PT90M",
            dt.timedelta(minutes=90),
        ),
        (
            forms.ChoiceField(choices=TITLED),
            {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]},
            "b",
            "b",
        ),
        (forms.ChoiceField(choices=[("a", "a"), ("b", "b")]), {"type": "string", "enum": ["a", "b"]}, "a", "a"),
        (
            forms.TypedChoiceField(choices=[(1, "One"), (2, "Two")], coerce=int),
            {"type": "string", "oneOf": [{"const": "1", "title": "One"}, {"const": "2", "title": "Two"}]},
            "2",
            2,
        ),
        (
            forms.ChoiceField(choices=Colour.KNOWN),
            {
                "type": "string",
                "oneOf": [
                    {"const": "r", "title": "Warm: Red"},
                    {"const": "o", "title": "Warm: Orange"},
                    {"const": "b", "title": "Blue"},
                ],
            },
            "o",
            "o",
        ),
        (
            forms.MultipleChoiceField(choices=TITLED),
            {
                "type": "array",
                "minItems": 1,
                "items": {"anyOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]},
            },
            ["b"],
            ["b"],
        ),
        (
            forms.TypedMultipleChoiceField(choices=[(1, "1"), (2, "2")], coerce=int, required=False),
            {"type": "array", "items": {"type": "string", "enum": ["1", "2"]}},
            ["1", "2"],
            [1, 2],
        ),
    ]
    for field, expected, given, value in cases:
        with subtests.test(field=field):
            assert only(field) == expected
            found = cleaned(field, given)
            assert found == value
            assert type(found) is type(value)


def test_an_initial_value_is_the_default_if_the_property_can_hold_it(subtests: pytest.Subtests) -> None:
    cases = [
        (forms.CharField(initial="x"), "x"),
        (forms.CharField(initial=""), None),
        (forms.IntegerField(initial="5"), 5),
        (forms.DecimalField(initial=Decimal("1.5")), 1.5),
        (forms.BooleanField(initial=False), False),
        (forms.DateField(initial=dt.date(2030, 5, 1)), "2030-05-01"),
        (forms.DateField(initial=lambda: dt.date(2030, 5, 1)), "2030-05-01"),
        (forms.DateTimeField(initial=dt.datetime(2030, 5, 1, 10, tzinfo=dt.UTC)), "2030-05-01T10:00:00+00:00"),
        (forms.ChoiceField(choices=TITLED, initial="b"), "b"),
        (forms.ChoiceField(choices=TITLED, initial="gone"), None),
        (forms.MultipleChoiceField(choices=TITLED, initial=["r", "b"]), ["r", "b"]),
        (forms.IntegerField(initial="many"), None),
        (forms.IntegerField(initial=True), None),
    ]
    for field, default in cases:
        with subtests.test(field=field, default=default):
            assert only(field).get("default") == default


def test_dates_are_parsed_as_iso_8601_in_every_language() -> None:
    with override("de"):
        assert cleaned(forms.DateField(localize=True), "2030-05-01") == dt.date(2030, 5, 1)
        assert cleaned(forms.DecimalField(localize=True), 1234.5) == Decimal("1234.5")


@pytest.mark.parametrize("field", [forms.DateTimeField(), forms.SplitDateTimeField()])
def test_a_datetime_without_time_zone_is_in_that_of_the_project(field: forms.Field, settings: Any) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Oslo"
    assert cleaned(field, "2030-01-01T10:00:00Z").isoformat() == "2030-01-01T11:00:00"


def test_a_split_datetime_keeps_its_initial_value() -> None:
    moment = dt.datetime(2030, 5, 1, 10, tzinfo=dt.UTC)
    field = forms.SplitDateTimeField(initial=moment)
    assert only(field)["default"] == "2030-05-01T10:00:00+00:00"
    assert ask(form_with(field)).read({})[0] == {"value": moment}


def test_an_invalid_date_is_refused_by_its_field(subtests: pytest.Subtests) -> None:
    for given in ["soon", "2030-02-31", "2030-13-01T10:00:00Z"]:
        with subtests.test(given=given):
            for field in (forms.DateField(), forms.DateTimeField(), forms.SplitDateTimeField()):
                assert refused(form_with(field), {"value": given}).startswith("Value: ")


def test_texts_are_in_the_language_of_the_request() -> None:
    form = form_with(forms.BooleanField(label=gettext_lazy("Yes")))
    with override("de"):
        assert ask(form).schema["properties"]["value"]["title"] == "Ja"


def test_hidden_and_disabled_fields_are_not_asked_and_keep_their_initial_values() -> None:
    class Quiet(forms.Form):
        token = forms.CharField(widget=forms.HiddenInput, initial="t")
        owner = forms.CharField(disabled=True, initial="ada")
        note = forms.CharField()

    form = ask(Quiet)
    assert list(form.schema["properties"]) == ["note"]
    assert form.read({"note": "n", "token": "x", "owner": "eve"})[0] == {"token": "t", "owner": "ada", "note": "n"}


def test_a_form_instance_with_its_own_arguments_is_asked_unchanged() -> None:
    class Mine(forms.Form):
        pick = forms.ChoiceField()

        def __init__(self, *args: Any, names: list[str], **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.fields["pick"].choices = [(name, name) for name in names]
            self.names = names

        def clean_pick(self) -> str:
            return f"{self.cleaned_data['pick']} of {len(self.names)}"

    form = Mine(names=["a", "b"], prefix="p")
    assert ask(form).schema["properties"]["pick"]["enum"] == ["a", "b"]
    assert ask(form).read({"pick": "a"})[0] == {"pick": "a of 2"}
    assert not form.is_bound
    assert refused(form, {"pick": "c"}).startswith("Pick: ")


def test_initial_values_do_not_change_the_identity_of_the_question() -> None:
    days = itertools.count(1)
    form = form_with(forms.DateField(initial=lambda: dt.date(2030, 1, next(days))))
    first, second = ask(form), ask(form)
    assert first.schema != second.schema
    assert first.identity == second.identity


def test_an_unsupported_field_is_an_error_of_the_author(subtests: pytest.Subtests) -> None:
    cases = [
        (forms.FileField(), "does not fit a question"),
        (forms.ImageField(required=False), "does not fit a question"),
        (forms.JSONField(), "does not fit a question"),
        (forms.Field(), "does not fit a question"),
        (forms.CharField(widget=forms.PasswordInput), "secret"),
        (forms.ChoiceField(choices=[(n, n) for n in range(MAX_CHOICES + 1)]), "more than 1000 choices"),
    ]
    for field, text in cases:
        with (
            subtests.test(field=field, text=text),
            pytest.raises(DeclarationError, match=f"One: field 'value'.*{text}"),
        ):
            ask(form_with(field))


def test_a_required_field_without_choices_is_an_error() -> None:
    with pytest.raises(InputUnavailable, match="No choices are available for 'Value'"):
        ask(form_with(forms.ChoiceField(choices=[])))
    assert ask(form_with(forms.ChoiceField(choices=[], required=False))).schema["properties"] == {}


def test_formsets_and_bound_forms_are_errors_of_the_author() -> None:
    with pytest.raises(DeclarationError, match="formset"):
        get_form_question_factory(formset_factory(BookingForm))
    with pytest.raises(DeclarationError, match="bound"):
        get_form_question_factory(BookingForm({"guest": "Ada"}))


def test_other_types_are_left_alone(subtests: pytest.Subtests) -> None:
    for other in [bool, str, None, dict, {"type": "object"}, list[int], int | None]:
        with subtests.test(other=other):
            assert get_form_question_factory(other) is None


class BookForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Book
        fields = ["title", "pages", "published", "owner"]


@pytest.mark.django_db
def test_a_model_form_is_asked_with_the_rules_of_its_model_and_saves() -> None:
    ada = get_user_model().objects.create_user("ada")
    schema = ask(BookForm).schema
    assert schema["properties"] == {
        "title": {"type": "string", "title": "Title", "minLength": 1, "maxLength": 200},
        "pages": {"type": "integer", "title": "Pages", "minimum": 0, "default": 0}
        | ({"maximum": schema["properties"]["pages"]["maximum"]} if "maximum" in schema["properties"]["pages"] else {}),
        "published": {"type": "string", "title": "Published", "format": "date"},
        "owner": {"type": "string", "title": "Owner", "oneOf": [{"const": str(ada.pk), "title": "ada"}]},
    }
    assert schema["required"] == ["title", "pages"]
    data, bound = ask(BookForm).read({"title": "Emma", "pages": 474, "published": "1815-12-23", "owner": str(ada.pk)})
    assert data["owner"] == ada
    book = bound.save()
    assert (book.title, book.pages, book.owner) == ("Emma", 474, ada)


@pytest.mark.django_db
def test_a_model_form_of_an_object_has_its_values_and_changes_it_only_when_saved() -> None:
    book = Book.objects.create(title="Emma", pages=474)
    form = BookForm(instance=book)
    assert ask(form).schema["properties"]["pages"]["default"] == 474
    refused(form, {"title": "E", "pages": -1})
    _, bound = ask(form).read({"pages": 500})
    assert (book.title, book.pages) == ("Emma", 474)
    bound.save()
    book.refresh_from_db()
    assert (book.title, book.pages) == ("Emma", 500)


@pytest.mark.django_db
def test_uniqueness_is_checked_unless_the_answer_was_accepted_before() -> None:
    content = {"title": "Emma", "pages": 1}
    _, bound = ask(BookForm).read(content)
    bound.save()
    assert refused(BookForm, content).startswith("Title: ")
    assert ask(BookForm).read(content, is_validated=True)[0]["title"] == "Emma"

"""Writable forms: a toolset's form class and its writable fields, compiled once per form class.

Values are converted from JSON to the input of a form field. Reading and writing differ. A decimal is shown as text and
may be given as a number. An optional text may be given as null. A choice lists its options.

Files are not writable. A storage is not transactional, so a dry run or a rejected form could not undo an upload.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models
from django.forms.models import ModelChoiceField, modelform_factory
from django.utils.choices import CallableChoiceIterator
from django.utils.html import strip_tags

from mcp_django.forms.choices import ValueChoice, build_choice_schema, describe_choices, join_sentences, list_choices
from mcp_django.forms.fields import build_property
from mcp_django.orm.codecs import Codec, get_codec
from mcp_django.orm.codecs.codec import Convert, ModelField
from mcp_django.orm.declaration.exposed_fields import ExposedField, RowDeclaration, get_tree_columns
from mcp_django.orm.declaration.relation_fields import build_relation_field
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.schema import DeclarationError, any_of_types, convert_failures, list_types, make_nullable

FormClass: TypeAlias = "type[forms.ModelForm[Any]]"
MAX_NAMED_CHOICES = 200
"""Maximum number of choices that a schema lists."""
MAX_REFERENCES = 1000
"""Maximum number of rows that one value may refer to."""
KEY_DESCRIPTION = "A primary key"
"""Description of a relation's value.

It does not name the other model, which may be hidden from the caller.
"""
DATABASE_DEFAULT_DESCRIPTION = "In a new row, the database sets it if it is omitted"
"""Description of a column with `db_default`."""


class WritableValue(NamedTuple):
    """Field value as clients write it."""

    schema: JSONObject
    parse: Convert
    """Function from valid JSON, except null, to input of the form field.

    It raises ValueError with a message for the client.
    """
    is_required: bool
    """True if new rows require the value."""
    label: str
    choices: tuple[ValueChoice, ...] = ()
    """Values that the schema lists, with labels."""


def build_writable_value(item: ExposedField, field: forms.Field) -> WritableValue | None:
    """Build the writable value of an exposed field, or return None if read-only.

    `field` is its field of the form.
    """
    model_field = item.model_field
    if isinstance(model_field, models.FileField) or isinstance(field, forms.FileField):
        return None
    codec = item.codec
    choices = [] if item.is_relation else _list_accepted_choices(model_field, field, codec)
    if item.is_to_many:
        schema, read = _build_to_many_value(model_field, codec)
    elif 0 < len(choices) <= MAX_NAMED_CHOICES:
        schema, read = _build_choice_value(choices, field)
    else:
        schema, read = _build_single_value(model_field, codec)
    if isinstance(field, forms.MultiValueField) and not isinstance(field, forms.SplitDateTimeField):
        schema, read = _add_parts(schema, read, field)

    label = str(field.label or item.name)
    is_filled_by_database = model_field.has_db_default()
    text = join_sentences(
        strip_tags(str(field.help_text or "")) or (KEY_DESCRIPTION if item.is_relation and not item.is_to_many else ""),
        str(schema.get("description", "")),
        _describe_many_choices(choices),
        DATABASE_DEFAULT_DESCRIPTION if is_filled_by_database else "",
    )
    if text:
        schema = {**schema, "description": text}
    if _accepts_null(item, field):
        schema = make_nullable(schema)
    has_default = model_field.has_default() or is_filled_by_database or _has_initial_value(field)
    listed = tuple(choices) if len(choices) <= MAX_NAMED_CHOICES else ()
    return WritableValue({"title": label, **schema}, read, field.required and not has_default, label, listed)


def _has_initial_value(field: forms.Field) -> bool:
    """Return True if an empty form has a value; a field of several parts may have some of them only."""
    if isinstance(field, forms.MultiValueField) and isinstance(field.initial, list | tuple):
        return all(part not in (None, "") for part in field.initial)
    return field.initial is not None


def _add_parts(schema: JSONObject, read: Convert, field: forms.MultiValueField) -> tuple[JSONObject, Convert]:
    """Return a value that may also be the list of its parts, unless the codec has a form for them."""
    if {"array", "object"} & {*list_types(schema)}:
        return schema, read
    types = dict.fromkeys(kind for part in field.fields for kind in _list_part_types(part))
    number = len(field.fields)
    parts = {"type": "array", "items": any_of_types(*types), "minItems": number, "maxItems": number}
    names = ", ".join(str(part.label or type(part).__name__.removesuffix("Field").lower()) for part in field.fields)
    plain = {key: rule for key, rule in schema.items() if key != "description"}
    text = join_sentences(str(schema.get("description", "")), f"Or the list of its parts: {names}")
    return (
        {"anyOf": [*plain.get("anyOf", [plain]), parts], "description": text},
        lambda value: value if isinstance(value, list) else read(value),
    )


def _list_part_types(part: forms.Field) -> tuple[str, ...]:
    if isinstance(part, forms.IntegerField):  # also decimals and floating-point numbers
        return "number", "string"
    return ("boolean",) if isinstance(part, forms.BooleanField) else ("string",)


def _accepts_null(item: ExposedField, field: forms.Field) -> bool:
    """Return True if null empties the column: it becomes NULL, an empty text or an empty list."""
    if field.required:
        return False
    if item.is_to_many or item.model_field.null:
        return True
    if isinstance(field, forms.BooleanField):
        return False  # the form would make False of it
    try:
        value = field.clean(None)
    except (AttributeError, TypeError, ValueError, ValidationError):
        return False
    return value is not None and (value != "" or bool(item.model_field.empty_strings_allowed))


def _build_to_many_value(field: Any, codec: Codec) -> tuple[JSONObject, Convert]:
    own_codec = get_codec(field)
    if own_codec.to_form is not None:  # rows are written by their names, for example
        return dict(own_codec.form_schema or own_codec.schema), own_codec.to_form
    schema = {
        "type": "array",
        "items": dict(codec.schema),
        "maxItems": MAX_REFERENCES,
        "description": "all of them, by pk",
    }
    return schema, lambda values: [codec.decode(value) for value in values]


def _build_single_value(field: Any, codec: Codec) -> tuple[JSONObject, Convert]:
    if field.is_relation:
        return {**codec.schema}, codec.decode
    if codec.kind == "list" and isinstance(getattr(field, "base_field", None), models.Field):
        return _build_list_value(field)
    return dict(codec.schema if codec.form_schema is None else codec.form_schema), codec.to_form or _identity


def _list_accepted_choices(model_field: Any, field: forms.Field, codec: Codec) -> list[ValueChoice]:
    """Return the choices of a column that its form field accepts.

    If they are too many for a schema, all declared choices are returned.
    A callable that a form declares is not called, because it may depend on the caller.
    """
    is_choice = isinstance(field, forms.ChoiceField) and not isinstance(field, forms.FilePathField)
    has_callable = isinstance(getattr(field, "choices", None), CallableChoiceIterator)
    declared = field.choices if is_choice and not has_callable else model_field.choices  # type: ignore[attr-defined]
    found = list_choices(declared or (), partial(serialize_choice, codec))
    choices = [choice for choice in found if choice.value not in (None, "")]
    if not choices or len(choices) > MAX_NAMED_CHOICES:
        return choices

    if is_choice and model_field.choices:
        known_values = {choice.value for choice in list_choices(model_field.choices, partial(serialize_choice, codec))}
        choices = [
            choice
            for choice in choices
            if choice.value in known_values and field.valid_value(choice.source)  # type: ignore[attr-defined]
        ]
    if not field.required and model_field.empty_strings_allowed and not isinstance(field, forms.MultipleChoiceField):
        choices.append(next((choice for choice in found if choice.value == ""), ValueChoice("", "", "")))
    return choices


def _describe_many_choices(choices: Sequence[ValueChoice]) -> str:
    if len(choices) <= MAX_NAMED_CHOICES:
        return ""
    return f"One of {len(choices)} choices, such as {describe_choices(choices[:3])}"


def serialize_choice(codec: Codec, value: Any) -> Any:
    """Return a declared choice as JSON; a choice of a column with several values is one of them."""
    is_plain = isinstance(value, str | bool | float | Enum) or (isinstance(value, int) and codec.kind != "integer")
    return value if is_plain else codec.serialize(value)


def _build_choice_value(choices: Sequence[ValueChoice], field: forms.Field) -> tuple[JSONObject, Convert]:
    schema = build_choice_schema(choices)
    sources = {choice.value: choice.source for choice in choices}
    if not isinstance(field, forms.MultipleChoiceField):
        return schema, lambda value: sources.get(value, value)
    text = {"description": schema.pop("description")} if "description" in schema else {}
    return (
        {"type": "array", "items": schema, "maxItems": len(choices), **text},
        lambda values: [sources.get(value, value) for value in values],
    )


def _build_list_value(field: Any) -> tuple[JSONObject, Convert]:
    base_field = field.base_field
    schema, read = _build_single_value(base_field, get_codec(base_field))
    if base_field.choices:
        item_choices = _list_accepted_choices(base_field, base_field.formfield(), get_codec(base_field))
        if 0 < len(item_choices) <= MAX_NAMED_CHOICES:
            schema, read = _build_choice_value(item_choices, forms.Field())
    size_limit = {"maxItems": field.size} if field.size else {}
    if base_field.null:
        schema = make_nullable(schema)
    return (
        {"type": "array", "items": schema, **size_limit},
        lambda values: [None if value is None else read(value) for value in values],
    )


def _identity(value: Any) -> Any:
    return value


class WritableForm(NamedTuple):
    """Form class with the fields that clients may write."""

    form: FormClass
    lenient_form: FormClass
    """The same form, with a place for errors of fields that it does not have."""
    values: dict[str, WritableValue]
    fields: dict[str, ExposedField]
    """Fields of the model; a project's form may have additional fields."""


class WritableDeclaration(RowDeclaration, Protocol):
    """Declaration of rows that clients may write."""

    @property
    def readonly_fields(self) -> Sequence[str]:
        """Fields that are shown but never written."""

    @property
    def form(self) -> "FormClass | None":
        """The project's form, or None."""

    @property
    def server_fields(self) -> tuple[str, ...]:
        """Names of form fields that the server fills."""

    @property
    def declared_writable_form(self) -> WritableForm:
        """The writable form of the declaration."""


def build_form_class(toolset: WritableDeclaration, server_fields: tuple[str, ...] = ()) -> FormClass:
    """Build the form class of a toolset, based on its `form`.

    `server_fields` are additional fields that the server sets.
    """
    base: FormClass = toolset.form or forms.ModelForm
    meta = getattr(base, "_meta", None)

    named, left_out = getattr(meta, "fields", None), getattr(meta, "exclude", None) or ()
    declared = getattr(base, "declared_fields", {})
    names = [
        name
        for name in get_writable_fields(toolset)
        if name in declared or (name not in left_out and (named in (None, "__all__") or name in named))
    ]

    names += [name for name in server_fields if name not in names]
    callback = getattr(meta, "formfield_callback", None) or _build_form_field

    def build_field(field: ModelField, **given: Any) -> Any:
        with _name_field(toolset, field.name):
            return callback(field, **given)

    return modelform_factory(toolset.model, form=base, fields=names, formfield_callback=build_field)


def _name_field(toolset: WritableDeclaration, name: str) -> AbstractContextManager[None]:
    """Return the context in which a failure is one of a field's form field."""
    return convert_failures(f"{toolset.source}: the form field {name!r}, which readonly_fields would leave out,")


def build_writable_form(toolset: WritableDeclaration, form: FormClass) -> WritableForm:
    """Compile the fields of a form that clients may write.

    Raises:
        DeclarationError: the form has a field that clients cannot fill in.
    """
    known = get_writable_fields(toolset)
    values: dict[str, WritableValue] = {}
    fields: dict[str, ExposedField] = {}
    for name, field in form.base_fields.items():
        if field.disabled:
            continue
        if name in known:
            with _name_field(toolset, name):
                value = build_writable_value(known[name], field)
            if value is not None:
                values[name], fields[name] = value, known[name]
        elif name in getattr(form, "declared_fields", {}) and not _is_column(toolset, name):
            with _name_field(toolset, name):
                values[name] = _build_form_only_value(toolset, form, name, field)
    return WritableForm(form, _make_lenient(form), values, fields)


def get_writable_fields(toolset: WritableDeclaration) -> dict[str, ExposedField]:
    """Return the shown, editable fields that clients may write, before the form restricts them."""
    readonly = {*toolset.readonly_fields, *toolset.sensitive_fields, *get_tree_columns(toolset.model)}
    return {
        name: item
        for name, item in toolset.exposure.fields.items()
        if not item.hops and name not in readonly and _is_writable(item.model_field)
    }


def _is_writable(field: Any) -> bool:
    """Return True for an editable field that clients can write.

    Rows of a many-to-many relation need no more values than two keys, or a codec writes them.
    """
    if field is None or not getattr(field, "editable", False) or getattr(field, "auto_created", False):
        return False
    through = getattr(getattr(field, "remote_field", None), "through", None)
    is_plain = through is None or through._meta.auto_created
    return not isinstance(field, models.FileField) and (is_plain or get_codec(field).to_form is not None)


def _build_form_field(field: ModelField, **given: Any) -> Any:
    if isinstance(field, models.URLField):
        # Django 5.2 warns unless a scheme is set.
        given.setdefault("assume_scheme", "https")
    return build_relation_field(field, **given) or field.formfield(**given)


def _is_column(toolset: WritableDeclaration, name: str) -> bool:
    return any(name in (field.name, getattr(field, "attname", "")) for field in toolset.model._meta.get_fields())


def _build_form_only_value(
    toolset: WritableDeclaration, form: FormClass, name: str, field: forms.Field
) -> WritableValue:
    """Compile a field that only the form has, such as a reason.

    It supports the same types as elicitation.
    """
    where = f"{toolset.source}: field {name!r} of {form.__name__}"
    if isinstance(field, ModelChoiceField):
        raise DeclarationError(f"{where} offers rows of a model to all callers; leave it out")
    label = str(field.label or name)
    described = build_property(field, label, where)
    if described is None:
        raise DeclarationError(f"{where} has no choices")
    required = field.required and field.initial is None
    if not isinstance(field, forms.ChoiceField):
        schema = described.schema if field.required else make_nullable(described.schema)
        return WritableValue(schema, described.to_python, required, label)

    choices = [choice for choice in list_choices(cast(Any, field.choices), str) if choice.value]
    schema, read = _build_choice_value(choices, field)
    text = join_sentences(str(described.schema.get("description", "")), str(schema.get("description", "")))
    schema = {"title": label, **schema, **({"description": text} if text else {})}
    return WritableValue(schema, read, required, label, tuple(choices))


def _make_lenient(form: FormClass) -> FormClass:
    """Return a form class that accepts errors for fields that it does not have.

    A model's `clean()` may report such errors. Django treats them as bugs, but here the form has only visible fields.
    """

    def update_errors(self: Any, errors: ValidationError) -> None:
        if hasattr(errors, "error_dict"):
            told: dict[str, list[Any]] = {}
            for name, problems in errors.error_dict.items():
                told.setdefault(name if name in self.fields else NON_FIELD_ERRORS, []).extend(problems)
            errors = ValidationError(told)
        form._update_errors(self, errors)  # type: ignore[attr-defined]

    return type(form.__name__, (form,), {"_update_errors": update_errors, "__module__": form.__module__})

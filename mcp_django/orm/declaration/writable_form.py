"""Writable forms: a toolset's form class and its writable fields, compiled once per form class.

Values are converted from JSON to the input of a form field. Reading and writing differ. A decimal is shown as text and
may be given as a number. An optional text may be given as null. A choice lists its options.

Files are not writable. A storage is not transactional, so a dry run or a rejected form could not undo an upload.
"""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models
from django.forms.models import ModelChoiceField, modelform_factory

from mcp_django.forms.fields import build_property
from mcp_django.orm.declaration.exposed_fields import ExposedField
from mcp_django.schema import DeclarationError

if TYPE_CHECKING:
    from mcp_django.orm.declaration.base import BaseModelToolset

from collections.abc import Callable, Mapping

from django.utils.html import strip_tags

from mcp_django.orm.codecs import Codec, get_codec
from mcp_django.orm.declaration.relation_fields import build_relation_field
from mcp_django.schema import convert_failures, make_nullable

FormClass: TypeAlias = "type[forms.ModelForm[Any]]"
MAX_NAMED_CHOICES = 200
"""Maximum number of choices that a schema lists."""
MAX_REFERENCES = 1000
"""Maximum number of rows that one value may refer to."""
KEY_DESCRIPTION = "A primary key"
"""Description of a relation's value.

It does not name the other model, which may be hidden from the caller.
"""


class WritableValue(NamedTuple):
    """Field value as clients write it."""

    schema: dict[str, Any]
    parse: Callable[[Any], Any]
    """Function from valid JSON, except null, to input of the form field.

    It raises ValueError with a message for the client.
    """
    is_required: bool
    """True if new rows require the value."""
    label: str


def build_writable_value(item: ExposedField, field: forms.Field) -> WritableValue | None:
    """Build the writable value of an exposed field, or return None if read-only.

    `field` is its field of the form.
    """
    model_field = item.model_field
    if isinstance(model_field, models.FileField) or isinstance(field, forms.FileField):
        return None
    codec = item.codec
    schema, read = _build_to_many_value(codec) if item.is_to_many else _build_single_value(model_field, codec)

    label = str(field.label or item.name)
    if text := strip_tags(str(field.help_text or "")).strip():
        schema = {**schema, "description": " ".join(filter(None, [text, str(schema.get("description", ""))]))}
    elif item.is_relation and not item.is_to_many:
        schema = {**schema, "description": KEY_DESCRIPTION}

    if model_field.null or not field.required:
        schema = _allow_null(schema)
    required = field.required and not model_field.has_default() and field.initial is None
    return WritableValue({"title": label, **schema}, read, required, label)


def _build_to_many_value(codec: Codec) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    schema = {
        "type": "array",
        "items": dict(codec.schema),
        "maxItems": MAX_REFERENCES,
        "description": "all of them, by pk",
    }
    return schema, lambda values: [codec.decode(value) for value in values]


def _build_single_value(field: Any, codec: Codec) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    if field.is_relation:
        return {**codec.schema}, codec.decode
    if field.choices:
        sources = {codec.serialize(value): value for value, _ in field.flatchoices}
        return _build_choice_schema(field, codec), lambda value: sources.get(value, value)

    if codec.kind == "list" and isinstance(getattr(field, "base_field", None), models.Field):
        return _build_list_value(field)
    return dict(codec.schema if codec.form_schema is None else codec.form_schema), codec.to_form or _identity


def _build_choice_schema(field: Any, codec: Codec) -> dict[str, Any]:
    options = [(codec.serialize(value), str(title)) for value, title in field.flatchoices]
    if field.blank and field.empty_strings_allowed and codec.kind == "text" and "" not in dict(options):
        options.append(("", "none"))
    if len(options) > MAX_NAMED_CHOICES:
        return {key: value for key, value in codec.schema.items() if key != "description"}
    return {"oneOf": [{"const": value, "title": title} for value, title in options]}


def _build_list_value(field: Any) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    schema, read = _build_single_value(field.base_field, get_codec(field.base_field))
    size_limit = {"maxItems": field.size} if field.size else {}
    if field.base_field.null:
        schema = make_nullable(schema)
    return (
        {"type": "array", "items": schema, **size_limit},
        lambda values: [None if value is None else read(value) for value in values],
    )


def _allow_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    if "oneOf" in schema:
        return {**schema, "oneOf": [*schema["oneOf"], {"const": None, "title": "none"}]}
    return make_nullable(schema)


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


def build_form_class(toolset: "BaseModelToolset", server_fields: tuple[str, ...] = ()) -> FormClass:
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

    def build_field(field: "models.Field[Any, Any]", **given: Any) -> Any:
        with _name_field(toolset, field.name):
            return callback(field, **given)

    return modelform_factory(toolset.model, form=base, fields=names, formfield_callback=build_field)


def _name_field(toolset: "BaseModelToolset", name: str) -> AbstractContextManager[None]:
    """Return the context in which a failure is one of a field's form field."""
    return convert_failures(f"{toolset.source}: the form field {name!r}, which readonly_fields would leave out,")


def build_writable_form(toolset: "BaseModelToolset", form: FormClass) -> WritableForm:
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


def get_writable_fields(toolset: "BaseModelToolset") -> dict[str, ExposedField]:
    """Return the shown, editable fields that clients may write, before the form restricts them."""
    readonly = {*toolset.readonly_fields, *toolset.sensitive_fields}
    return {
        name: item
        for name, item in toolset.exposure.fields.items()
        if not item.hops and name not in readonly and _is_writable(item.model_field)
    }


def _is_writable(field: Any) -> bool:
    """Return True for an editable field whose rows need no more values than two keys."""
    if field is None or not getattr(field, "editable", False) or getattr(field, "auto_created", False):
        return False
    through = getattr(getattr(field, "remote_field", None), "through", None)
    return not isinstance(field, models.FileField) and (through is None or through._meta.auto_created)


def _build_form_field(field: "models.Field[Any, Any]", **given: Any) -> Any:
    if isinstance(field, models.URLField):
        # Django 5.2 warns unless a scheme is set.
        given.setdefault("assume_scheme", "https")
    return build_relation_field(field, **given) or field.formfield(**given)


def _is_column(toolset: "BaseModelToolset", name: str) -> bool:
    return any(name in (field.name, getattr(field, "attname", "")) for field in toolset.model._meta.get_fields())


def _build_form_only_value(
    toolset: "BaseModelToolset", form: FormClass, name: str, field: forms.Field
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
    return WritableValue(described.schema, described.to_python, field.required and field.initial is None, label)


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

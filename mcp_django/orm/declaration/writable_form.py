"""Writable forms: a toolset's form class and its writable fields.

They are compiled once per form class.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models
from django.forms.models import ModelChoiceField, modelform_factory

from mcp_django.forms.fields import build_property
from mcp_django.orm.declaration.exposed_fields import ExposedField
from mcp_django.orm.declaration.writable_values import WritableValue, build_writable_value
from mcp_django.schema import DeclarationError

if TYPE_CHECKING:
    from mcp_django.orm.declaration.base import BaseModelToolset

FormClass: TypeAlias = "type[forms.ModelForm[Any]]"


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
    return modelform_factory(toolset.model, form=base, fields=names, formfield_callback=callback)


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
            value = build_writable_value(known[name], field)
            if value is not None:
                values[name], fields[name] = value, known[name]
        elif name in getattr(form, "declared_fields", {}) and not _is_column(toolset, name):
            values[name] = _build_form_only_value(toolset, form, name, field)
    return WritableForm(form, _make_lenient(form), values, fields)


def get_writable_fields(toolset: "BaseModelToolset") -> dict[str, ExposedField]:
    """Return the model fields that clients may write, before the form restricts them."""
    return {
        name: item
        for name, item in toolset.exposure.writable_fields.items()
        if not item.is_sensitive
        and not isinstance(item.model_field, models.FileField)
        and not has_custom_through_model(item)
    }


def _build_form_field(field: "models.Field[Any, Any]", **given: Any) -> Any:
    if isinstance(field, models.URLField):
        # Django 5.2 warns unless a scheme is set.
        given.setdefault("assume_scheme", "https")
    return field.formfield(**given)


def has_custom_through_model(item: ExposedField) -> bool:
    """Return True for a relation with a custom through model.

    Its rows may need more values than two keys.
    """
    through = getattr(getattr(item.model_field, "remote_field", None), "through", None)
    return through is not None and not through._meta.auto_created


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

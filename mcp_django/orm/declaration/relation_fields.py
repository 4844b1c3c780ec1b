"""Form fields of relations that select the related rows when a form is created.

Django's `formfield()` queries the manager of the related model while the class of the form is created. Such a class is
created once, without a call. A manager that depends on the call (the tenant of a scope) would fail there, or would
restrict the rows of all later calls to those of no tenant.
"""

from typing import Any

from django import forms
from django.db import models

from mcp_django.protocol.jsonrpc import JSONObject


class RelatedRowField(forms.ModelChoiceField):  # type: ignore[type-arg]  # generic for type checkers only
    """Choice of one row of a model."""

    def __init__(self, model: type[models.Model], **options: Any) -> None:
        super().__init__(queryset=None, **options)
        self._model = model

    def __deepcopy__(self, memo: Any) -> "RelatedRowField":
        """Return the field of a new form."""
        copied: RelatedRowField = super().__deepcopy__(memo)
        copied.queryset = self._model._default_manager.all()
        return copied


class RelatedRowsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]  # generic for type checkers only
    """Choice of several rows of a model."""

    def __init__(self, model: type[models.Model], **options: Any) -> None:
        super().__init__(queryset=None, **options)
        self._model = model

    def __deepcopy__(self, memo: Any) -> "RelatedRowsField":
        """Return the field of a new form."""
        copied: RelatedRowsField = super().__deepcopy__(memo)
        copied.queryset = self._model._default_manager.all()
        return copied


def build_relation_field(field: Any, **options: Any) -> forms.Field | None:
    """Return the form field of a relation; None if its class, or the form, has a form field of its own.

    The other options are those of `formfield()`.
    """
    if "form_class" in options or "queryset" in options or options.get("initial") is not None:
        return None
    method, model = type(field).formfield, field.related_model
    if method is models.ManyToManyField.formfield:
        return _build_field(models.ManyToManyField, field, form_class=RelatedRowsField, model=model, **options)
    if method is models.ForeignKey.formfield or (
        method is models.OneToOneField.formfield and not field.remote_field.parent_link
    ):
        key: JSONObject = {"to_field_name": field.remote_field.field_name, "blank": field.blank}
        return _build_field(models.ForeignKey, field, form_class=RelatedRowField, model=model, **{**options, **key})
    return None


def _build_field(kind: type[Any], field: Any, **options: Any) -> forms.Field | None:
    """Return the form field as `formfield()` of `kind` does, without its default queryset."""
    built: forms.Field | None = super(kind, field).formfield(**options)
    return built

"""Django forms as questions: a form's schema, and the bound form of an answer.

All functions may query the database, for choices or validation, so call them on a worker thread.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any, cast

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.forms import BaseForm, BaseFormSet
from django.forms.models import BaseModelForm

from mcp_django.forms.fields import (
    FormProperty,
    build_default,
    build_property,
    has_property_type,
    take_converted_values,
)
from mcp_django.schema import ArgumentError, DeclarationError


def get_form_question_factory(schema: Any) -> "Callable[[], DjangoFormQuestion] | None":
    """Return a factory of questions for a form, or None for other objects.

    `schema` is a class or an unbound instance of Form or ModelForm.

    Raises:
        DeclarationError: `schema` is a bound form or a formset.
    """
    kind = schema if isinstance(schema, type) else type(schema)
    if issubclass(kind, BaseFormSet):
        raise DeclarationError(f"{kind.__name__} is a formset; ask with one form at a time")
    if not issubclass(kind, BaseForm):
        return None
    if kind is not schema and schema.is_bound:
        raise DeclarationError(f"{kind.__name__} is bound to data; ask with the class, or with an unbound form")
    return functools.partial(DjangoFormQuestion, schema)


class DjangoFormQuestion:
    """Form that a question sends to the client.

    Hidden and disabled fields are not sent. They keep their initial values, as do fields that the client omits. Values
    of null or "" leave a field empty.
    """

    def __init__(self, form: Any) -> None:
        """Build the schema of `form`, a class or an unbound instance.

        Raises:
            DeclarationError: a field cannot be part of a form for clients.
        """
        self._form = cast(BaseForm, form() if isinstance(form, type) else form)
        self._properties: dict[str, FormProperty] = {}
        properties: dict[str, Any] = {}
        for name, field in self._form.fields.items():
            if field.disabled or field.widget.is_hidden:
                continue
            where = f"{type(self._form).__name__}: field '{name}'"
            form_property = build_property(field, str(self._form[name].label), where)
            if form_property is not None:
                self._properties[name] = form_property
                default = build_default(field, form_property.schema, self._get_initial_value(name))
                properties[name] = (
                    form_property.schema if default is None else {**form_property.schema, "default": default}
                )

        self.schema: dict[str, Any] = {"type": "object", "properties": properties}
        """Restricted JSON Schema of the form."""
        if required := [name for name in properties if self._form.fields[name].required]:
            self.schema["required"] = required
        self.identity = {
            **self.schema,
            "properties": {name: form_property.schema for name, form_property in self._properties.items()},
        }
        """The schema without initial values, which may be computed for each instance."""

    def read(self, content: Any, *, is_validated: bool = False) -> tuple[dict[str, Any], BaseForm]:
        """Return the cleaned data of an answer's content, and the bound form.

        With `taken` the same content was valid before. Uniqueness in the database is not checked again, because the
        handler may have saved the data since.

        Raises:
            ArgumentError: the content is invalid; the message lists the problem of each field.
        """
        if not isinstance(content, dict):
            raise ArgumentError("the content of a form must be an object")
        data, problems = self._build_form_data(content)
        if problems:
            raise ArgumentError("\n".join(f"{self._form[name].label}: {text}" for name, text in problems.items()))
        bound = self._bind_copy(data)
        if is_validated:
            vars(bound).update(validate_unique=_skip_validation, validate_constraints=_skip_validation)
        if bound.errors:
            errors = {name: [str(text) for text in texts] for name, texts in bound.errors.items()}
            errors.pop(NON_FIELD_ERRORS, None)
            raise ArgumentError("\n".join(_format_errors(bound)), errors=errors)
        return bound.cleaned_data, bound

    def bind(self, content: dict[str, Any]) -> BaseForm:
        """Return the form bound to an answer's content, with its errors.

        Values of a wrong type are errors of their fields.
        """
        data, problems = self._build_form_data(content)
        bound = self._bind_copy(data)
        for name, text in problems.items():
            bound.errors[name] = bound.error_class([text])
            bound.cleaned_data.pop(name, None)
        return bound

    def _get_initial_value(self, name: str) -> Any:
        return self._form.get_initial_for_field(self._form.fields[name], name)

    def _build_form_data(self, content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the data that a browser would have sent, and problems of types by field."""
        data: dict[str, Any] = {}
        problems: dict[str, str] = {}
        for name, field in self._form.fields.items():
            form_property = self._properties.get(name)
            if form_property is None or name not in content:
                value = field.prepare_value(self._get_initial_value(name))
                if isinstance(field, forms.MultiValueField) and not isinstance(value, list):
                    value = cast(forms.MultiWidget, field.widget).decompress(value)
            elif (given := content[name]) is None or given == "":
                continue
            elif has_property_type(given, form_property.schema):
                value = form_property.to_python(given)
            else:
                problems[name] = f"this must be of type {form_property.schema['type']}"
                continue
            if value is not None:
                data[self._form.add_prefix(name)] = value

        return data, problems

    def _bind_copy(self, data: dict[str, Any]) -> BaseForm:
        """Return a copy of the form that is bound to the data.

        The form is copied, because it may have been created with unknown arguments.
        """
        bound = copy.copy(self._form)
        bound.fields = {name: _copy_with_answer_widget(field) for name, field in self._form.fields.items()}
        bound.is_bound, bound.data, bound.files = True, cast(Any, data), cast(Any, {})
        vars(bound).update(_errors=None, _bound_fields_cache={})
        if isinstance(bound, BaseModelForm):
            # Cleaning modifies the instance, even if the answer is rejected.
            bound.instance = copy.copy(bound.instance)
        return bound


def _copy_with_answer_widget(field: forms.Field) -> forms.Field:
    copied = copy.copy(field)
    copied.widget = copy.copy(field.widget)
    take_converted_values(copied)
    return copied


def _format_errors(form: BaseForm) -> list[str]:
    return [
        " ".join(str(text) for text in texts)
        if name == NON_FIELD_ERRORS
        else f"{form[name].label}: {' '.join(str(text) for text in texts)}"
        for name, texts in form.errors.items()
    ]


def _skip_validation() -> None:
    return None

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

from mcp_django.forms.fields import Property, default_of, fits, property_of
from mcp_django.schema import ArgumentError, DeclarationError


def form_question(schema: Any) -> "Callable[[], DjangoForm] | None":
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
    return functools.partial(DjangoForm, schema)


class DjangoForm:
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
        self._asked: dict[str, Property] = {}
        properties: dict[str, Any] = {}
        for name, field in self._form.fields.items():
            if field.disabled or field.widget.is_hidden:
                continue
            where = f"{type(self._form).__name__}: field '{name}'"
            asked = property_of(field, str(self._form[name].label), where)
            if asked is not None:
                self._asked[name] = asked
                default = default_of(field, asked.schema, self._initial(name))
                properties[name] = asked.schema if default is None else {**asked.schema, "default": default}

        self.schema: dict[str, Any] = {"type": "object", "properties": properties}
        """Restricted JSON Schema of the form."""
        if required := [name for name in properties if self._form.fields[name].required]:
            self.schema["required"] = required
        self.identity = {**self.schema, "properties": {name: asked.schema for name, asked in self._asked.items()}}
        """The schema without initial values, which may be computed for each instance."""

    def read(self, content: Any, *, taken: bool = False) -> tuple[dict[str, Any], BaseForm]:
        """Return the cleaned data of an answer's content, and the bound form.

        With `taken` the same content was valid before. Uniqueness in the database is not checked again, because the
        handler may have saved the data since.

        Raises:
            ArgumentError: the content is invalid; the message lists the problem of each field.
        """
        if not isinstance(content, dict):
            raise ArgumentError("the content of a form must be an object")
        bound = self._bind(self._data(content))
        if taken:
            vars(bound).update(validate_unique=_nothing, validate_constraints=_nothing)
        if bound.errors:
            raise ArgumentError("\n".join(_complaints(bound)))
        return bound.cleaned_data, bound

    def _initial(self, name: str) -> Any:
        return self._form.get_initial_for_field(self._form.fields[name], name)

    def _data(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return the data that a browser would have sent."""
        data: dict[str, Any] = {}
        wrong = []
        for name, field in self._form.fields.items():
            asked = self._asked.get(name)
            if asked is None or name not in content:
                value = field.prepare_value(self._initial(name))
                if isinstance(field, forms.MultiValueField) and not isinstance(value, list):
                    value = cast(forms.MultiWidget, field.widget).decompress(value)
            elif (given := content[name]) is None or given == "":
                continue
            elif fits(given, asked.schema):
                value = asked.to_python(given)
            else:
                wrong.append(f"{self._form[name].label}: this must be of type {asked.schema['type']}")
                continue
            if value is not None:
                data[self._form.add_prefix(name)] = value

        if wrong:
            raise ArgumentError("\n".join(wrong))
        return data

    def _bind(self, data: dict[str, Any]) -> BaseForm:
        """Return a copy of the form that is bound to the data.

        The form is copied, because it may have been created with unknown arguments.
        """
        bound = copy.copy(self._form)
        bound.fields = {name: _with_values(field) for name, field in self._form.fields.items()}
        bound.is_bound, bound.data, bound.files = True, cast(Any, data), cast(Any, {})
        vars(bound).update(_errors=None, _bound_fields_cache={})
        if isinstance(bound, BaseModelForm):
            # Cleaning modifies the instance, even if the answer is rejected.
            bound.instance = copy.copy(bound.instance)
        return bound


class _Value(forms.Widget):
    """Widget that returns a converted value instead of parsing browser input."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        return data.get(name)

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return name not in data


def _with_values(field: forms.Field) -> forms.Field:
    copied = copy.copy(field)
    copied.widget = _Value()
    return copied


def _complaints(form: BaseForm) -> list[str]:
    return [
        " ".join(str(text) for text in texts)
        if name == NON_FIELD_ERRORS
        else f"{form[name].label}: {' '.join(str(text) for text in texts)}"
        for name, texts in form.errors.items()
    ]


def _nothing() -> None:
    return None

"""A Django form as a question: what is asked, and the bound form that an answer makes of it.

All of this may ask the database (choices of a queryset, validation), and belongs on a lane.
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
    """What makes the question of a Form or ModelForm, a class or an unbound instance; None for anything else.

    Raises DeclarationError for a bound form, and for a formset.
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
    """A form that a question asks to fill in.

    Hidden and disabled fields are not asked for; they keep their initial values, as fields do that the client says
    nothing about. What it gives as null or "" is left empty.
    """

    def __init__(self, form: Any) -> None:
        """`form` is a class or an unbound instance. Raises DeclarationError for what does not fit a question."""
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
        """The restricted JSON Schema of the form."""
        if required := [name for name in properties if self._form.fields[name].required]:
            self.schema["required"] = required
        self.identity = {**self.schema, "properties": {name: asked.schema for name, asked in self._asked.items()}}
        """The same without the initial values: these may be worked out anew each time."""

    def read(self, content: Any, *, taken: bool = False) -> tuple[dict[str, Any], BaseForm]:
        """The cleaned data of an answer's content, and the bound form.

        `taken` says that the same content was found valid before: whether it is unique in the database is not asked
        again then, since the handler may have saved it.

        Raises ArgumentError, which says for each field what is wrong with it.
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
        """What a browser would have sent."""
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
        """A copy of the form with this data: the form may have been made with arguments that nobody knows."""
        bound = copy.copy(self._form)
        bound.fields = {name: _with_values(field) for name, field in self._form.fields.items()}
        bound.is_bound, bound.data, bound.files = True, cast(Any, data), cast(Any, {})
        vars(bound).update(_errors=None, _bound_fields_cache={})
        if isinstance(bound, BaseModelForm):
            # Cleaning writes into the instance, a refused answer too.
            bound.instance = copy.copy(bound.instance)
        return bound


class _Value(forms.Widget):
    """In place of a field's own widget, which reads what a browser sends: here the values are there."""

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

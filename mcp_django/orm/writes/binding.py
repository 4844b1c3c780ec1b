"""Binding of a client's values to a Django form; omitted fields keep their values.

Only shown and editable fields are accepted, even if the form has more. Relations may refer only to rows that the caller
can read through the other model's toolset, if that exists. Hidden rows stay in many-to-many relations.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet

from mcp_django.forms.fields import take_converted_values
from mcp_django.orm.declaration.exposed_fields import ExposedField
from mcp_django.orm.declaration.writable_form import WritableForm
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.server.context.context import Context

FieldErrors = dict[str, list[str]]


class BoundWriteForm:
    """Form bound to a client's values."""

    def __init__(self, ctx: Context, writable_form: WritableForm, values: JSONMapping, *, using: str) -> None:
        self.ctx = ctx
        self.writable_form = writable_form
        self.values = values
        self.using = using
        self.errors: FieldErrors = {}
        self._preserved_relations: list[str] = []
        self._visible_rows: dict[str, QuerySet[Any] | None] = {}
        """Visible rows of given relations to exposed models; None if all rows are visible."""
        self.form: forms.ModelForm[Any]

    def bind(self, instance: Model | None, server_values: JSONMapping | None = None) -> "BoundWriteForm":
        """Validate the values for a row and collect the problems in `errors`.

        `instance` is None or unsaved for a new row. `server_values` are values of fields that the server sets.
        """
        data: JSONObject = {}

        form = self.form = self.writable_form.lenient_form(data, instance=instance)
        for name, field in list(form.fields.items()):
            if server_values is not None and name in server_values:
                form.fields[name] = PreservedField(field, partial(_identity, server_values[name]))
            elif name in self.values and name in self.writable_form.values and not field.disabled:
                self._set_value(name, field, data)
            elif not field.disabled:
                self._set_omitted_value(name, field, data)
        for name in self.values:
            if name not in form.fields or form.fields[name].disabled:
                self.errors.setdefault(name, ["This field cannot be written."])

        for name, texts in form.errors.items():
            self.errors.setdefault(name, []).extend(str(text) for text in texts)

        if not self.errors:
            self._check_view_permissions()
            self._preserve_hidden_rows()
        return self

    def save(self, save_model: Callable[..., None], *, change: bool) -> Model:
        """Save the row with `save_model`, then its many-to-many relations."""
        obj: Model = self.form.save(commit=False)
        save_model(self.ctx, obj, self.form, change)
        for name in self._preserved_relations:
            self.form.cleaned_data.pop(name, None)
        self.form.save_m2m()
        return obj

    def _set_value(self, name: str, field: forms.Field, data: JSONObject) -> None:
        given = self.values[name]
        try:
            value: Any = None if given is None else self.writable_form.values[name].parse(given)
        except ValueError as problem:
            self.errors[name] = [f"{problem}."[:1].upper() + f"{problem}."[1:]]
            self._preserve_value(name, field)
            return

        if isinstance(field, forms.MultiValueField):
            try:
                value = self._divide_value(name, field, value)
            except (ValueError, ValidationError) as problem:
                self.errors[name] = getattr(problem, "messages", [str(problem)])
                self._preserve_value(name, field)
                return
        if isinstance(field, forms.ModelChoiceField):
            self._limit_choices(name, field)
        elif self._is_to_many(name):
            self._find_visible_rows(name)
        take_converted_values(field)
        data[self.form.add_prefix(name)] = value

    def _divide_value(self, name: str, field: forms.MultiValueField, value: Any) -> list[Any]:
        """Return the parts of a value, which may be given as such.

        The widget divides the value that the model's attribute has, such as an amount with the currency of the row. So
        a copy of the row converts the client's value to it.
        """
        if isinstance(value, list | tuple):
            return list(value)
        if value not in (None, "") and name in self.writable_form.fields:
            row = copy.copy(self.form.instance)
            setattr(row, name, value)
            value = getattr(row, name)
        return cast("list[Any]", cast(forms.MultiWidget, field.widget).decompress(value))

    def _set_omitted_value(self, name: str, field: forms.Field, data: JSONObject) -> None:
        """Set a field that the client omitted.

        An existing row keeps its value. A new row gets the initial value of an empty form, or that of the database.
        """
        item = self.writable_form.fields.get(name)
        is_form_only = name in self.writable_form.values and item is None
        is_filled_by_database = item is not None and item.model_field.has_db_default() and field.initial is None
        if not is_form_only and (is_filled_by_database or not self.form.instance._state.adding):
            self._preserve_value(name, field)
            return

        initial: Any = self.form.get_initial_for_field(field, name)
        if item is not None and initial in (None, "") and not field.required and self._has_usable_default(item):
            self._preserve_value(name, field)
            return
        if initial is None or initial == "" or isinstance(field, forms.ModelChoiceField | forms.MultiValueField):
            if isinstance(field, forms.MultiValueField):
                initial = self._divide_value(name, field, initial)
            elif initial is not None:
                initial = field.prepare_value(initial)
            take_converted_values(field)
            if initial not in (None, ""):
                data[self.form.add_prefix(name)] = initial
        else:
            self.form.fields[name] = PreservedField(field, partial(_identity, initial))

    def _preserve_value(self, name: str, field: forms.Field) -> None:
        self.form.fields[name] = PreservedField(field, partial(_get_current_value, self.form.instance, name))
        if isinstance(field, forms.ModelMultipleChoiceField) or self._is_to_many(name):
            self._preserved_relations.append(name)

    def _has_usable_default(self, item: ExposedField) -> bool:
        """Return True if the new row has a value of the column already.

        The form may make NULL of an omitted value.
        """
        if item.is_to_many:
            return False
        return item.model_field.null or getattr(self.form.instance, item.model_field.attname) is not None

    def _is_to_many(self, name: str) -> bool:
        return name in self.writable_form.fields and self.writable_form.fields[name].is_to_many

    def _limit_choices(self, name: str, field: Any) -> None:
        field.to_field_name = None  # clients identify rows by primary key
        rows = field.queryset.using(self.using)
        visible_rows = self._find_visible_rows(name)
        field.queryset = rows if visible_rows is None else rows.filter(pk__in=visible_rows.values("pk"))

    def _find_visible_rows(self, name: str) -> "QuerySet[Any] | None":
        """Return the rows of a relation that the caller may see, or None for all.

        They are kept for later checks.
        """
        target = self.writable_form.fields[name].target
        if target is None:
            return None
        visible_rows = None
        if not target.can_view(self.ctx):
            visible_rows = target.model._base_manager.none()
        elif target.is_scoped:
            visible_rows = target.get_queryset(self.ctx).using(self.using).order_by()
        self._visible_rows[name] = visible_rows
        return visible_rows

    def _check_view_permissions(self) -> None:
        """Check the view permission of each referenced row, if defined per row."""
        for name in self._visible_rows:
            target = self.writable_form.fields[name].target
            is_choice = isinstance(self.form.fields[name], forms.ModelChoiceField)
            if target is None or not is_choice or not target.decides_by_row:
                continue
            field, chosen = self.form.fields[name], self.form.cleaned_data.get(name)
            if chosen is None:
                continue
            for row in [chosen] if isinstance(chosen, Model) else chosen:
                if not target.has_view_permission(self.ctx, row):
                    # Use the message for missing rows.
                    text = str(field.error_messages["invalid_choice"])
                    self.errors[name] = [text % {"value": row.pk} if "%(value)s" in text else text]

    def _preserve_hidden_rows(self) -> None:
        if self.form.instance.pk is None:
            return
        for name, seen in self._visible_rows.items():
            if seen is not None and self.writable_form.fields[name].is_to_many:
                current_rows = getattr(self.form.instance, name).using(self.using)
                hidden_rows = current_rows.exclude(pk__in=seen.values("pk"))
                self.form.cleaned_data[name] = [*self.form.cleaned_data[name], *hidden_rows]


class PreservedField(forms.Field):
    """Form field with a value that the client cannot change."""

    def __init__(self, field: forms.Field, value: Callable[[], Any]) -> None:
        super().__init__(required=field.required, label=field.label, disabled=True)
        self._value = value

    def clean(self, value: Any) -> Any:
        return self._value()


def _identity(value: Any) -> Any:
    return value


def _get_current_value(instance: Model, name: str) -> Any:
    value: Any = getattr(instance, name, None)
    return value.all() if hasattr(value, "get_queryset") and hasattr(value, "all") else value

"""Binding of a client's values to a Django form; omitted fields keep their values.

Only shown and editable fields are accepted, even if the form has more. Relations may refer only to rows that the caller
can read through the other model's toolset, if that exists. Hidden rows stay in many-to-many relations.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from django import forms
from django.db.models import Model, QuerySet

from mcp_django.orm.writes.forms.compiled import Fillable
from mcp_django.server.context.context import Context

Errors = dict[str, list[str]]


class Filled:
    """Form bound to a client's values."""

    def __init__(self, ctx: Context, fillable: Fillable, given: Mapping[str, Any], *, using: str) -> None:
        self.ctx, self.fillable, self.given, self.using = ctx, fillable, given, using
        self.errors: Errors = {}
        self._kept: list[str] = []
        self._seen: dict[str, QuerySet[Any] | None] = {}
        """Visible rows of given relations to exposed models; None if all rows are visible."""
        self.form: forms.ModelForm[Any]

    def bind(self, instance: Model | None, fixed: Mapping[str, Any] | None = None) -> "Filled":
        """Validate the values for a row and collect the problems in `errors`.

        `instance` is None or unsaved for a new row. `server_values` are values of fields that the server sets.
        """
        data: dict[str, Any] = {}

        form = self.form = self.fillable.tolerant(data, instance=instance)
        for name, field in list(form.fields.items()):
            if fixed is not None and name in fixed:
                form.fields[name] = Kept(field, partial(_itself, fixed[name]))
            elif name in self.given and name in self.fillable.values and not field.disabled:
                self._fill(name, field, data)
            elif not field.disabled:
                self._leave(name, field, data)
        for name in self.given:
            if name not in form.fields or form.fields[name].disabled:
                self.errors[name] = ["This field cannot be written."]

        for name, texts in form.errors.items():
            self.errors.setdefault(name, []).extend(str(text) for text in texts)

        if not self.errors:
            self._check_rows()
            self._keep_unseen()
        return self

    def save(self, save_model: Callable[..., None], *, change: bool) -> Model:
        """Save the row with `save_model`, then its many-to-many relations."""
        obj: Model = self.form.save(commit=False)
        save_model(self.ctx, obj, self.form, change)
        for name in self._kept:
            self.form.cleaned_data.pop(name, None)
        self.form.save_m2m()
        return obj

    def _fill(self, name: str, field: forms.Field, data: dict[str, Any]) -> None:
        given = self.given[name]
        try:
            value = None if given is None else self.fillable.values[name].read(given)
        except ValueError as problem:
            self.errors[name] = [f"{problem}."[:1].upper() + f"{problem}."[1:]]
            self._keep(name, field)
            return

        if isinstance(field, forms.MultiValueField):
            value = field.widget.decompress(value)
        if isinstance(field, forms.ModelChoiceField):
            self._limit(name, field)
        field.widget = _Given()
        data[self.form.add_prefix(name)] = value

    def _leave(self, name: str, field: forms.Field, data: dict[str, Any]) -> None:
        """Set a field that the client omitted.

        An existing row keeps its value. A new row gets the initial value of an empty form.
        """
        extra = name in self.fillable.values and name not in self.fillable.fields
        if not extra and not self.form.instance._state.adding:
            self._keep(name, field)
            return

        initial = self.form.get_initial_for_field(field, name)
        if initial is None or initial == "" or isinstance(field, forms.ModelChoiceField | forms.MultiValueField):
            if isinstance(field, forms.MultiValueField):
                initial = field.widget.decompress(initial)
            elif initial is not None:
                initial = field.prepare_value(initial)
            field.widget = _Given()
            if initial not in (None, ""):
                data[self.form.add_prefix(name)] = initial
        else:
            self.form.fields[name] = Kept(field, partial(_itself, initial))

    def _keep(self, name: str, field: forms.Field) -> None:
        self.form.fields[name] = Kept(field, partial(_value_of, self.form.instance, name))
        if isinstance(field, forms.ModelMultipleChoiceField):
            self._kept.append(name)

    def _limit(self, name: str, field: Any) -> None:
        field.to_field_name = None  # clients identify rows by primary key
        rows = field.queryset.using(self.using)
        target = self.fillable.fields[name].target
        if target is not None:
            seen = None
            if not target.lets_view(self.ctx):
                seen = target.model._base_manager.none()
            elif target.is_scoped:
                seen = target.get_queryset(self.ctx).using(self.using).order_by()
            self._seen[name] = seen
            if seen is not None:
                rows = rows.filter(pk__in=seen.values("pk"))
        field.queryset = rows

    def _check_rows(self) -> None:
        """Check the view permission of each referenced row, if defined per row."""
        for name in self._seen:
            target = self.fillable.fields[name].target
            if target is None or not target.overrides("has_view_permission"):
                continue
            field, chosen = self.form.fields[name], self.form.cleaned_data.get(name)
            rows = [] if chosen is None else [chosen] if isinstance(chosen, Model) else list(chosen)
            for row in rows:
                if not target.has_view_permission(self.ctx, row):
                    # Use the message for missing rows.
                    text = str(field.error_messages["invalid_choice"])
                    self.errors[name] = [text % {"value": row.pk} if "%(value)s" in text else text]

    def _keep_unseen(self) -> None:
        if self.form.instance.pk is None:
            return
        for name, seen in self._seen.items():
            if seen is not None and self.fillable.fields[name].many:
                there = getattr(self.form.instance, name).using(self.using)
                unseen = there.exclude(pk__in=seen.values("pk"))
                self.form.cleaned_data[name] = [*self.form.cleaned_data[name], *unseen]


class Kept(forms.Field):
    """Form field with a value that the client cannot change."""

    def __init__(self, instead_of: forms.Field, value: Callable[[], Any]) -> None:
        super().__init__(required=instead_of.required, label=instead_of.label, disabled=True)
        self._value = value

    def clean(self, value: Any) -> Any:
        return self._value()


class _Given(forms.Widget):
    """Widget that returns a converted value instead of parsing browser input."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        return data.get(name)

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return name not in data


def _itself(value: Any) -> Any:
    return value


def _value_of(instance: Model, name: str) -> Any:
    value: Any = getattr(instance, name, None)
    return value.all() if hasattr(value, "get_queryset") and hasattr(value, "all") else value

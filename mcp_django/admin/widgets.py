"""Form fields for words, lines and scopes, an input with suggestions, and two boxes to choose from."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django import forms
from django.contrib.admin.widgets import FilteredSelectMultiple
from django.contrib.auth import get_user_model
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from mcp_django.conf import get_settings
from mcp_django.models.rules import check_names


class WordsField(forms.CharField):
    """List of distinct words separated by spaces, sorted."""

    def __init__(self, *, check: Callable[[Any], None], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._check = check

    def to_python(self, value: Any) -> Any:
        return sorted(set(str(value or "").replace(",", " ").split()))

    def prepare_value(self, value: Any) -> Any:
        return " ".join(map(str, value)) if isinstance(value, list) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(sorted(initial or []) != self.to_python(data))

    def validate(self, value: Any) -> None:
        super().validate(value)
        self._check(value)


class LinesField(forms.CharField):
    """List of distinct texts, one per line, in the given order."""

    widget = forms.Textarea

    def to_python(self, value: Any) -> Any:
        lines = (line.strip() for line in str(value or "").splitlines())
        return list(dict.fromkeys(line for line in lines if line))

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool((initial or []) != self.to_python(data))


class UsersField(LinesField):
    """List of users: names in the form, one per line, and primary keys as texts in the row.

    A deleted user is shown as # and its key, and stays in the row until the line is removed.
    """

    def clean(self, value: Any) -> Any:
        names: list[str] = super().clean(value)
        check_names(names)
        name_field = get_user_model().USERNAME_FIELD
        keys = {name: str(key) for key, name in _list_users(**{f"{name_field}__in": names})}

        unknown = [name for name in names if name not in keys and not name.startswith("#")]
        if unknown:
            raise forms.ValidationError(_("Unknown user %s. Write names of users.") % ", ".join(unknown))
        return [keys.get(name) or name.removeprefix("#") for name in names]

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(get_user_names(value)) if isinstance(value, list) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(get_user_names(initial or []) != self.to_python(data))


def get_user_names(keys: Sequence[str]) -> list[str]:
    """Return the names of users with these primary keys. Of a deleted user, it is # and the key."""
    names = {str(key): str(name) for key, name in _list_users(pk__in=[key for key in keys if _is_key(key)])}
    return [names.get(key, f"#{key}") for key in keys]


def _list_users(**conditions: Any) -> list[tuple[Any, Any]]:
    users = get_user_model()
    return list(users._default_manager.filter(**conditions).values_list("pk", users.USERNAME_FIELD))


def _is_key(text: str) -> bool:
    """Return True if a text may be the primary key of a user."""
    try:
        get_user_model()._meta.pk.to_python(text)
    except forms.ValidationError:
        return False
    return True


def build_scope_choices(selected: Iterable[str]) -> list[tuple[str, str]]:
    """Return the declared scopes with their descriptions, and the undeclared ones in `selected`."""
    declared = {name: f"{name}: {text}" for name, text in get_settings().scopes.items()}
    undeclared = {name: str(_("%s (not declared)") % name) for name in selected if name not in declared}
    return [*declared.items(), *undeclared.items()]


def replace_by_scope_boxes(form: forms.BaseForm, name: str, selected: Iterable[str], help_text: Any) -> None:
    """Replace a field for words by a check box for each scope, if the project declares scopes."""
    field = form.fields.get(name)
    if field is None or not get_settings().scopes:
        return
    form.fields[name] = forms.MultipleChoiceField(
        choices=build_scope_choices(selected),
        required=False,
        label=field.label,
        help_text=help_text,
        widget=forms.CheckboxSelectMultiple,
    )


class SuggestingInput(forms.TextInput):
    """Text input with suggestions. They are computed by `options` on each rendering."""

    def __init__(self, options: Callable[[], Iterable[str]], attrs: Any = None) -> None:
        super().__init__({"size": 60, **(attrs or {})})
        self._options = options

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        id = f"suggestions_{name}"
        box = super().render(name, value, {**(attrs or {}), "list": id}, renderer)
        options = format_html_join("", '<option value="{}">', ((option,) for option in self._options()))
        return format_html('{}<datalist id="{}">{}</datalist>', box, id, options)


class BoxesInput(FilteredSelectMultiple):
    """Selection in two boxes, placed behind the label as in the admin's own fields."""

    def render(self, *args: Any, **kwargs: Any) -> SafeString:
        return format_html('<div class="related-widget-wrapper">{}</div>', super().render(*args, **kwargs))

"""Form fields for lists of words and lines, for scopes, and a text input with suggestions."""

from collections.abc import Callable, Iterable
from typing import Any

from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from mcp_django.conf import get_settings


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

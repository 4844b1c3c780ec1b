"""Form fields for lists of words and lines, and a text input with suggestions."""

from collections.abc import Callable, Iterable
from typing import Any

from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString


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

"""Django forms from JSON Schemas. Empty optional fields are left out of the arguments.

Scalars, choices, and lists of scalars and of choices have fields of their own, and objects a fieldset. Any other value
is JSON in a text area. The form leaves the validation to the server: a wrong value is sent, and the answer shows the
error. Inputs are plain text, because a browser changes or withholds the value of an input for dates or addresses.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django import forms
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.playground.forms.argument_errors import find_argument_errors
from mcp_django.contrib.playground.forms.argument_schemas import AllowedValue, Argument, list_arguments
from mcp_django.extensions.calls import jsonrpc

PREFIX = "argument-"
NULL_PREFIX = "null-"
LEFT_OUT = ""
NULL_TEXT = "null"
_SENTENCE_ENDS = (".", "!", "?", ":", ")", "。")
MAX_JSON_DEPTH = 100
"""Maximum nesting of typed JSON."""
EXAMPLE_TIME = datetime(2026, 12, 31, 14, 30, tzinfo=UTC)
EXAMPLES: Mapping[str, str] = {
    "date": EXAMPLE_TIME.date().isoformat(),
    "time": f"{EXAMPLE_TIME.time()}Z",
    "date-time": EXAMPLE_TIME.isoformat().replace("+00:00", "Z"),
    "email": "ada@example.com",
    "uri": "https://example.com/",
}
"""Formats of strings with an input for one line, and an example of each."""
_KEYBOARDS: Mapping[str, str] = {"email": "email", "uri": "url"}
_PICKERS: Mapping[str, str] = {"date": "date", "time": "time", "date-time": "datetime-local"}
_EMPTY_VALUES: Mapping[str, Any] = {"string": "", "array": [], "object": {}}


class FormRow(NamedTuple):
    """Argument with its fields, for the template."""

    argument: Argument
    field: forms.BoundField | None
    """Field of its value; None for an object with properties."""
    null_field: forms.BoundField | None
    rows: "list[FormRow]"
    """Rows of its properties."""


class ArgumentsForm(forms.Form):
    """Form for the arguments of a schema."""

    def __init__(self, schema: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        self.arguments = list_arguments(schema)
        self._add_fields(self.arguments)

    def _add_fields(self, arguments: Iterable[Argument]) -> None:
        for argument in arguments:
            key = build_key(argument)
            if not argument.properties:
                self.fields[PREFIX + key] = _build_field(argument)
            if argument.is_nullable and argument.choices is None:
                label = _("Send null for %(name)s") % {"name": argument.name}
                self.fields[NULL_PREFIX + key] = forms.BooleanField(label=label, required=False)
            self._add_fields(argument.properties)

    @property
    def rows(self) -> list[FormRow]:
        """Arguments with their fields, as a tree."""
        return self._build_rows(self.arguments)

    def _build_rows(self, arguments: Iterable[Argument]) -> list[FormRow]:
        return [
            FormRow(
                argument,
                None if argument.properties else self[PREFIX + build_key(argument)],
                self[NULL_PREFIX + build_key(argument)] if NULL_PREFIX + build_key(argument) in self.fields else None,
                self._build_rows(argument.properties),
            )
            for argument in arguments
        ]

    def build_arguments(self) -> dict[str, Any]:
        """Return the arguments of a valid form: no optional field that is empty."""
        return self._read_object(self.arguments)

    def _read_object(self, arguments: Iterable[Argument]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for argument in arguments:
            if self._is_null(argument):
                found[argument.name] = None
            elif not self._is_filled(argument):
                if argument.is_required and argument.choices is None and argument.type in _EMPTY_VALUES:
                    found[argument.name] = _EMPTY_VALUES[argument.type]
            elif argument.properties:
                found[argument.name] = self._read_object(argument.properties)
            else:
                found[argument.name] = _read_value(argument, self.cleaned_data[PREFIX + build_key(argument)])
        return found

    def _is_null(self, argument: Argument) -> bool:
        return bool(self.cleaned_data.get(NULL_PREFIX + build_key(argument)))

    def _is_filled(self, argument: Argument) -> bool:
        """Return True if there is a value in the fields of an argument."""
        if argument.properties:
            return any(self._is_null(inner) or self._is_filled(inner) for inner in argument.properties)
        return self.cleaned_data[PREFIX + build_key(argument)] not in (LEFT_OUT, [])

    def add_server_errors(self, text: str) -> None:
        """Put the parts of a server's error at the fields that they name. Call it after `build_arguments`."""
        keys = {leaf.path: PREFIX + build_key(leaf) for leaf in iter_leaves(self.arguments)}
        for path, problem in find_argument_errors(text, keys):
            self.add_error(keys[path], problem)


def iter_leaves(arguments: Iterable[Argument]) -> Iterator[Argument]:
    """Yield the arguments that have a field for their value, at all levels."""
    for argument in arguments:
        if argument.properties:
            yield from iter_leaves(argument.properties)
        else:
            yield argument


def build_key(argument: Argument) -> str:
    """Return the name of an argument in the names of fields: its path as a JSON pointer."""
    return "/".join(part.replace("~", "~0").replace("/", "~1") for part in argument.path)


def build_filled_form(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> ArgumentsForm | None:
    """Return the valid form that sends exactly these arguments; None if no form does."""
    data: dict[str, Any] = {}
    _write_object(list_arguments(schema), arguments, data)
    form = ArgumentsForm(schema, data)
    if not form.is_valid() or _format_exactly(form.build_arguments()) != _format_exactly(arguments):
        return None
    return form


def read_json(text: str) -> Any:
    """Return the value of a text.

    Raises ValueError with the place of the problem, also for text that no server could read.
    """
    try:
        value = jsonrpc.loads(text)
    except json.JSONDecodeError as problem:
        # The reason of the parser is English only.
        place = {"line": problem.lineno, "column": problem.colno}
        raise ValueError(_("see line %(line)s, column %(column)s") % place) from None
    _check_depth(value, MAX_JSON_DEPTH)
    return value


def _check_depth(value: Any, levels_left: int) -> None:
    if levels_left == 0:
        raise ValueError(_("more than %(limit)s levels") % {"limit": MAX_JSON_DEPTH})
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_depth(inner, levels_left - 1)


def _build_field(argument: Argument) -> forms.Field:
    options: dict[str, Any] = {
        "label": f"{argument.title}{' *' if argument.is_required else ''}",
        "required": False,
        "help_text": argument.description,
    }
    choices, default = argument.choices, argument.schema.get("default")
    if choices is not None:
        if argument.is_nullable and all(choice.value is not None for choice in choices):
            choices = [*choices, AllowedValue(None)]
        if argument.is_required and len(choices) == 1 and len(argument.path) == 1:
            options["initial"] = _format_exactly(choices[0].value)
        empty = "—" if default is None else _("— (default: %(value)s)") % {"value": _format_default(default)}
        return forms.ChoiceField(choices=[(LEFT_OUT, empty), *map(_build_option, choices)], **options)
    if argument.item_choices is not None:
        return forms.MultipleChoiceField(
            choices=[_build_option(choice) for choice in argument.item_choices],
            widget=forms.CheckboxSelectMultiple,
            **options,
        )

    attributes = {} if default is None else {"placeholder": _format_default(default)}
    return _build_text_field(argument, attributes, options)


def _build_text_field(argument: Argument, attributes: dict[str, Any], options: dict[str, Any]) -> forms.Field:
    notes, rows = [options["help_text"]], 3
    if argument.is_secret and argument.type == "string":
        widget: forms.Widget = forms.PasswordInput(attrs={**attributes, "autocomplete": "new-password"})
        return forms.CharField(strip=False, widget=widget, **options)
    if argument.format in EXAMPLES:
        notes.append(_("For example %(value)s.") % {"value": EXAMPLES[argument.format]})
        return forms.CharField(
            strip=False,
            widget=forms.TextInput(attrs={**attributes, **_build_format_attributes(argument.format)}),
            **{**options, "help_text": _join(notes)},
        )
    if argument.type in ("integer", "number"):
        return forms.CharField(widget=forms.TextInput(attrs={**attributes, **_PLAIN}), **options)

    if argument.type == "string":
        rows = 1
    elif argument.item_type:
        notes.append(_("One value on each line."))
    else:
        notes.append(_("JSON."))
        options["validators"] = [_check_json]
    widget = forms.Textarea(attrs={**attributes, "rows": rows})
    return forms.CharField(strip=False, widget=widget, **{**options, "help_text": _join(notes)})


_PLAIN: Mapping[str, str] = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


def _build_format_attributes(name: str) -> dict[str, str]:
    """Return the attributes of an input: the keyboard of a phone, and the picker of the script."""
    found = dict(_PLAIN)
    if name in _KEYBOARDS:
        found["inputmode"] = _KEYBOARDS[name]
    if name in _PICKERS:
        found["data-picker"] = _PICKERS[name]
    return found


def _build_option(choice: AllowedValue) -> tuple[str, str]:
    text = choice.value if isinstance(choice.value, str) else _format_exactly(choice.value)
    label = f"{choice.title} ({text})" if choice.title and choice.title != text else text
    return _format_exactly(choice.value), label


def _join(notes: Iterable[Any]) -> str:
    """Return notes as sentences. Descriptions of authors often lack the last full stop."""
    texts = [str(note) for note in notes if note]
    return " ".join(text if text.endswith(_SENTENCE_ENDS) or text is texts[-1] else f"{text}." for text in texts)


def _format_default(value: Any) -> str:
    return value if isinstance(value, str) and value else _format_exactly(value)


def _format_exactly(value: Any) -> str:
    """Return the JSON of a value, which differs for 1, 1.0 and true."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _check_json(text: str) -> None:
    try:
        read_json(text)
    except ValueError as problem:
        raise forms.ValidationError(_("This is not valid JSON: %(problem)s") % {"problem": problem}) from None


def _read_value(argument: Argument, value: Any) -> Any:
    """Return the value of the entered text, or of the choice."""
    if argument.choices is not None:
        return jsonrpc.loads_exactly(value)
    if argument.item_choices is not None:
        return [jsonrpc.loads_exactly(text) for text in value]
    text = value.replace("\r\n", "\n")
    if argument.type == "string":
        return text
    if argument.type in ("integer", "number"):
        return _read_number(text)
    if argument.item_type:
        read = _ITEM_READERS[argument.item_type]
        return [read(line) for line in text.split("\n") if line.strip()]
    return read_json(text)


def _read_number(text: str) -> Any:
    """Return a number; other text is sent as it is, so that the server can refuse it."""
    try:
        value = read_json(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) and not isinstance(value, bool) else text


_ITEM_READERS: Mapping[str, Callable[[str], Any]] = {
    "string": str,
    "integer": _read_number,
    "number": _read_number,
    "boolean": lambda line: {"true": True, "false": False}.get(line.strip(), line),
}


def _write_object(arguments: Iterable[Argument], values: Mapping[str, Any], data: dict[str, Any]) -> None:
    for argument in arguments:
        if argument.name not in values:
            continue
        value, key = values[argument.name], build_key(argument)
        if value is None and argument.is_nullable and argument.choices is None:
            data[NULL_PREFIX + key] = "on"
        elif not argument.properties:
            data[PREFIX + key] = _write_value(argument, value)
        elif isinstance(value, Mapping):
            _write_object(argument.properties, value, data)


def _write_value(argument: Argument, value: Any) -> Any:
    """Return the text, or the chosen options, of a value."""
    if argument.item_choices is not None and isinstance(value, list):
        return [_format_exactly(item) for item in value]
    if argument.item_type and isinstance(value, list) and value:
        return "\n".join(item if isinstance(item, str) else _format_exactly(item) for item in value)
    if argument.choices is None and isinstance(value, str) and argument.type in ("string", "integer", "number"):
        return value
    return _format_exactly(value)

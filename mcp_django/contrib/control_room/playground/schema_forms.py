"""Django forms from JSON Schemas. Empty optional fields are left out of the arguments.

Scalars, choices and lists of scalars have fields of their own. Any other value is JSON in a text area. The form leaves
the validation to the server: a wrong value is sent, and the answer shows the error.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

PREFIX = "argument-"
NULL_PREFIX = "null-"
MAX_REFERENCES = 20
"""Maximum references that are followed from one schema to another."""
SCALARS = ("string", "integer", "number", "boolean")
LEFT_OUT = ""
_EMPTY_VALUES: Mapping[str, Any] = {"string": "", "array": []}


@dataclass(frozen=True, slots=True)
class Argument:
    """Property of a schema."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool
    is_nullable: bool

    @property
    def type(self) -> str:
        """JSON type; empty if the schema allows several."""
        found = self.schema.get("type")
        return found if isinstance(found, str) else ""

    @property
    def choices(self) -> list[Any] | None:
        """Allowed values, or None."""
        if "const" in self.schema:
            return [self.schema["const"]]
        found = self.schema.get("enum")
        return [value for value in found if value is not None] if isinstance(found, list) else None


class ArgumentsForm(forms.Form):
    """Form for the arguments of a schema."""

    def __init__(self, schema: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.arguments = list_arguments(schema)
        for argument in self.arguments:
            self.fields[PREFIX + argument.name] = _build_field(argument)
            if argument.is_nullable:
                label = _("Send null for %(name)s") % {"name": argument.name}
                self.fields[NULL_PREFIX + argument.name] = forms.BooleanField(label=label, required=False)

    def build_arguments(self) -> dict[str, Any]:
        """Return the arguments of a valid form: no optional field that is empty."""
        found: dict[str, Any] = {}
        for argument in self.arguments:
            if self.cleaned_data.get(NULL_PREFIX + argument.name):
                found[argument.name] = None
                continue
            text = self.cleaned_data[PREFIX + argument.name]
            if text != LEFT_OUT:
                found[argument.name] = _read_value(argument, text)
            elif argument.is_required and argument.type in _EMPTY_VALUES:
                found[argument.name] = _EMPTY_VALUES[argument.type]
        return found


def list_arguments(schema: Mapping[str, Any]) -> list[Argument]:
    """Return the properties of an object schema, the required ones first."""
    required = schema.get("required", ())
    properties = schema.get("properties", {})
    found = []
    for name, raw in properties.items():
        part, is_nullable = _split_null(_resolve(raw, schema), schema)
        found.append(Argument(name, part, name in required, is_nullable))
    return sorted(found, key=lambda argument: not argument.is_required)


def _resolve(raw: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema without its reference. Text beside the reference stays."""
    schema: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
    for _number in range(MAX_REFERENCES):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        target: Any = root
        for part in reference[2:].split("/"):
            target = target.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(target, Mapping) else {}
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **beside}
    return schema


def _split_null(schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return a schema without null, and True if it allowed null."""
    kind = schema.get("type")
    if isinstance(kind, list) and "null" in kind:
        others = [each for each in kind if each != "null"]
        return {**schema, "type": others[0] if len(others) == 1 else others}, True
    for keyword in ("anyOf", "oneOf"):
        branches = schema.get(keyword)
        if not isinstance(branches, list):
            continue
        resolved = [_resolve(branch, root) for branch in branches]
        others = [branch for branch in resolved if branch.get("type") != "null"]
        if len(others) < len(resolved):
            beside = {key: value for key, value in schema.items() if key != keyword}
            return ({**others[0], **beside} if len(others) == 1 else beside), True
    return schema, False


def _build_field(argument: Argument) -> forms.Field:
    schema, choices = argument.schema, argument.choices
    label = f"{schema.get('title') or argument.name}{' *' if argument.is_required else ''}"
    options: dict[str, Any] = {"label": label, "required": False, "help_text": str(schema.get("description", ""))}
    if choices is None and argument.type == "boolean":
        choices = [True, False]
    if choices is not None:
        pairs = [(json.dumps(value), value if isinstance(value, str) else json.dumps(value)) for value in choices]
        return forms.ChoiceField(choices=[(LEFT_OUT, "—"), *pairs], **options)
    if argument.type in ("integer", "number"):
        return forms.CharField(widget=forms.TextInput(attrs={"inputmode": "decimal"}), **options)
    if argument.type == "string":
        return forms.CharField(strip=False, widget=forms.Textarea(attrs={"rows": 1}), **options)
    if _is_list_of_scalars(argument):
        options["help_text"] = f"{options['help_text']} {_('One value on each line.')}".strip()
    else:
        options["help_text"] = f"{options['help_text']} {_('JSON.')}".strip()
        options["validators"] = [_check_json]
    return forms.CharField(strip=False, widget=forms.Textarea(attrs={"rows": 3}), **options)


def _check_json(text: str) -> None:
    try:
        json.loads(text)
    except ValueError as problem:
        raise forms.ValidationError(_("This is not valid JSON: %(problem)s") % {"problem": problem}) from None


def _read_value(argument: Argument, text: str) -> Any:
    if argument.choices is not None or argument.type == "boolean":
        return json.loads(text)
    if argument.type == "string":
        return text.replace("\r\n", "\n")
    if argument.type in ("integer", "number"):
        return _read_number(text)
    if _is_list_of_scalars(argument):
        read = _ITEM_READERS[argument.schema["items"]["type"]]
        return [read(line) for line in text.splitlines() if line.strip()]
    return json.loads(text)


def _is_list_of_scalars(argument: Argument) -> bool:
    items = argument.schema.get("items")
    return argument.type == "array" and isinstance(items, Mapping) and items.get("type") in SCALARS


def _read_number(text: str) -> Any:
    """Return a number; other text is sent as it is, so that the server can refuse it."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) and not isinstance(value, bool) else text


_ITEM_READERS: Mapping[str, Callable[[str], Any]] = {
    "string": str,
    "integer": _read_number,
    "number": _read_number,
    "boolean": lambda line: {"true": True, "false": False}.get(line.strip(), line),
}

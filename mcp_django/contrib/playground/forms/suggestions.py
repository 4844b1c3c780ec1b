"""Suggestions for the arguments of prompts and the variables of templates, by `completion/complete`."""

from collections.abc import Mapping
from typing import Any

from django import forms

from mcp_django.contrib.playground.forms.schema_forms import PREFIX, ArgumentsForm, build_key
from mcp_django.contrib.playground.messages import send
from mcp_django.contrib.playground.primitives import ListedPrimitive
from mcp_django.extensions.callers import DjangoPrincipal

SUGGEST = "suggest"
"""Name of the button of an argument, whose value is the name of the argument."""
MAX_SUGGESTIONS = 100


class SuggestionInput(forms.TextInput):
    """Input with a list of suggestions, and a button that loads them."""

    template_name = "mcp_playground/suggestions.html"

    def __init__(self, argument: str, suggestions: list[str]) -> None:
        super().__init__({"autocomplete": "off", "data-suggest": argument})
        self.argument = argument
        self.suggestions = suggestions

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """Return the context, with a list of suggestions under an id that the input refers to."""
        context = super().get_context(name, value, attrs)
        list_id = f"{context['widget']['attrs'].get('id', name)}_list"
        context["widget"]["attrs"]["list"] = list_id
        return context | {"list_id": list_id, "argument": self.argument, "suggestions": self.suggestions}


def can_suggest(entry: ListedPrimitive, capabilities: Mapping[str, Any]) -> bool:
    """Return True if the server completes the arguments of an entry."""
    return "completions" in capabilities and "inputSchema" not in entry.raw and bool(_build_reference(entry))


def load_suggestions(
    alias: str, principal: DjangoPrincipal, entry: ListedPrimitive, form: ArgumentsForm, name: str | None
) -> dict[str, list[str]]:
    """Return the suggestions for an argument by its name; empty for an unknown one."""
    typed = {argument.name: str(form.data.get(PREFIX + build_key(argument), "")) for argument in form.arguments}
    if name not in typed:
        return {}
    others = {key: value for key, value in typed.items() if key != name and value}
    params: dict[str, Any] = {
        "ref": _build_reference(entry),
        "argument": {"name": name, "value": typed[name]},
        **({"context": {"arguments": others}} if others else {}),
    }
    result = send(alias, principal, "completion/complete", params).result or {}
    found = result.get("completion", {}).get("values", [])
    return {name: [str(value) for value in found[:MAX_SUGGESTIONS]]}


def offer_suggestions(form: ArgumentsForm, found: Mapping[str, list[str]]) -> None:
    """Turn the fields of a form into inputs with suggestions. Text of several lines keeps its text area."""
    for argument in form.arguments:
        name = PREFIX + build_key(argument)
        if "\n" not in str(form.data.get(name, "")):
            form.fields[name].widget = SuggestionInput(argument.name, found.get(argument.name, []))


def _build_reference(entry: ListedPrimitive) -> dict[str, Any]:
    if "uriTemplate" in entry.raw:
        return {"type": "ref/resource", "uri": entry.key} if entry.template is not None else {}
    return {} if "uri" in entry.raw else {"type": "ref/prompt", "name": entry.key}

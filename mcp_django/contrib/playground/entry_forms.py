"""Form of an entry: with the entered values, the arguments of a link, or its defaults."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from mcp_django.contrib.playground.forms.schema_forms import ArgumentsForm, build_filled_form, read_json
from mcp_django.contrib.playground.links import InvalidLink, read_linked_arguments
from mcp_django.contrib.playground.messages import format_json
from mcp_django.contrib.playground.page_state import PageState
from mcp_django.contrib.playground.primitives import ListedPrimitive


class InvalidArguments(ValueError):
    """Arguments that cannot be sent; the text has the reason."""


def build_form_state(
    request: HttpRequest, entry: ListedPrimitive, query: Mapping[str, str], *, is_typed: bool
) -> PageState:
    """Return the form of an entry for the page. `query` is that of its URL.

    Arguments of a link that no form can show are JSON.
    """
    schema = entry.build_schema()
    state = PageState(schema=format_json(schema))
    if is_typed:
        return replace(state, form=ArgumentsForm(schema, request.POST))

    try:
        linked = read_linked_arguments(request, query)
    except InvalidLink as problem:
        return replace(state, form=_fill(schema, entry.get_start()), error=str(problem))
    form = _fill(schema, linked or entry.get_start())
    if not linked:
        return replace(state, form=form)
    error = None if form.is_bound else _("The form cannot show these arguments. They are below as JSON.")
    return replace(state, form=form, error=error, arguments=format_json(linked))


def parse_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a JSON text. Raises InvalidArguments."""
    try:
        arguments = read_json(text)
    except ValueError as problem:
        raise InvalidArguments(_("This is not valid JSON: %(problem)s") % {"problem": problem}) from None
    if not isinstance(arguments, dict):
        raise InvalidArguments(_("The arguments must be a JSON object."))
    return arguments


def _fill(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> ArgumentsForm:
    """Return the form with the arguments; the empty form if it cannot show them."""
    return (build_filled_form(schema, arguments) if arguments else None) or ArgumentsForm(schema)

"""Links to calls: kind, name, user and arguments in a URL, without secrets."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.http import urlencode

from mcp_django.contrib.control_room.playground.argument_schemas import Argument, list_arguments

ARGUMENTS_PARAMETER = "arguments"
MAX_LINK_CHARACTERS = 6000
"""Maximum length of the query of a link. Servers refuse long ones."""


def build_call_link(query: Mapping[str, str], schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return the query of the URL that opens a form with these arguments; None if it would be too long."""
    kept = remove_secrets(schema, arguments)
    text = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
    link = urlencode({**query, ARGUMENTS_PARAMETER: text} if kept else query)
    return f"?{link}" if len(link) <= MAX_LINK_CHARACTERS else None


def remove_secrets(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without passwords, and without values that may hold one."""
    return _remove_secrets(list_arguments(schema), arguments, has_secrets(schema))


def has_secrets(schema: Mapping[str, Any]) -> bool:
    """Return True if a part of a schema is a secret."""
    text = json.dumps(schema)
    return '"writeOnly": true' in text or '"format": "password"' in text


def _remove_secrets(arguments: Iterable[Argument], values: Mapping[str, Any], may_hold_secrets: bool) -> dict[str, Any]:
    """Return values without secrets. Of values without a field of their own, secrets cannot be told apart."""
    known = {argument.name: argument for argument in arguments}
    kept: dict[str, Any] = {}
    for name, value in values.items():
        argument = known.get(name)
        if argument is not None and argument.properties and isinstance(value, Mapping) and not argument.is_secret:
            kept[name] = _remove_secrets(argument.properties, value, may_hold_secrets)
        elif not may_hold_secrets or (argument is not None and argument.is_plain and not argument.is_secret):
            kept[name] = value
    return kept

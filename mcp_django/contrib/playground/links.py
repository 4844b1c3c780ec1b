"""Links to calls: kind, name and user in a URL, and sealed arguments.

URLs are in logs, histories and chats, and a schema does not mark each secret. So arguments are sealed. The arguments of
a recorded call stay in its row, which another app reads: its link has the key of the row only.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.http import HttpRequest
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from mcp_django import conf
from mcp_django.contrib.playground.forms.argument_schemas import Argument, list_arguments
from mcp_django.extensions.conversations import StateTooLarge
from mcp_django.extensions.errors import InvalidParams
from mcp_django.runtime.sealing import TokenSealer

ARGUMENTS_PARAMETER = "arguments"
"""Parameter with the sealed arguments of a call."""
CALL_PARAMETER = "call"
"""Parameter with the primary key of a recorded call."""
MAX_LINK_CHARACTERS = 6000
"""Maximum length of the query of a link. Servers refuse long ones."""
LINK_SECONDS = 30 * 86_400.0
"""Seconds for which a link opens."""
LoadCall = Callable[[HttpRequest, Mapping[str, str], str], dict[str, Any] | None]
"""Function of a request, the query of an entry and the key of a recorded call.

It returns the arguments, or None.
"""
_CALL_LOADERS: list[LoadCall] = []


class InvalidLink(ValueError):
    """Link whose arguments cannot be shown; the text has the reason."""


@conf.cached
def get_link_sealer() -> TokenSealer:
    """Return the sealer of the arguments in links."""
    return TokenSealer(conf.secret_keys(), purpose="playground link", max_token_bytes=MAX_LINK_CHARACTERS)


def build_call_link(query: Mapping[str, str], schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return the query of the URL that opens a form with these arguments; None if it would be too long.

    `query` is that of the entry. The link has no passwords, and its other arguments are sealed.
    """
    kept = remove_secrets(schema, arguments)
    try:
        sealed = {ARGUMENTS_PARAMETER: _seal(query, kept)} if kept else {}
    except StateTooLarge:
        return None
    link = urlencode({**query, **sealed})
    return f"?{link}" if len(link) <= MAX_LINK_CHARACTERS else None


def read_linked_arguments(request: HttpRequest, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of the link to an entry that was followed; empty without any.

    Raises InvalidLink.
    """
    if request.method != "GET":
        return {}
    if CALL_PARAMETER in request.GET:
        return _load_arguments(request, query, request.GET[CALL_PARAMETER])
    token = request.GET.get(ARGUMENTS_PARAMETER, "")
    try:
        return get_link_sealer().unseal(token, _build_binding(query)) if token else {}
    except InvalidParams:
        raise InvalidLink(_("The arguments of this link are damaged or have expired. Ask for a new link.")) from None


def set_call_loader(load: LoadCall) -> None:
    """Set the function that loads the arguments of recorded calls."""
    _CALL_LOADERS[:] = [load]


def _load_arguments(request: HttpRequest, query: Mapping[str, str], pk: str) -> dict[str, Any]:
    """Return the arguments of a recorded call, if the user may see them. Each refusal has the same text."""
    for load in _CALL_LOADERS:
        found = load(request, query, pk)
        if found is not None:
            return found
    raise InvalidLink(_("The arguments of this call were deleted, or you may not see them."))


def _seal(query: Mapping[str, str], arguments: Mapping[str, Any]) -> str:
    return get_link_sealer().seal(dict(arguments), _build_binding(query), ttl=LINK_SECONDS)


def _build_binding(query: Mapping[str, str]) -> bytes:
    """Return the entry in whose links arguments open."""
    return repr([query[name] for name in ("server", "kind", "name")]).encode("utf-8", "surrogatepass")


def remove_secrets(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without passwords, and without values that may hold one."""
    return _remove_secrets(list_arguments(schema), arguments, has_secrets(schema))


def has_secrets(schema: Mapping[str, Any]) -> bool:
    """Return True if a part of a schema is a secret."""
    text = json.dumps(schema)
    return '"writeOnly": true' in text or '"format": "password"' in text


def _remove_secrets(arguments: Iterable[Argument], values: Mapping[str, Any], may_hold_secrets: bool) -> dict[str, Any]:
    """Return values without secrets, and without values that have no field if they may hold secrets."""
    known = {argument.name: argument for argument in arguments}
    kept: dict[str, Any] = {}
    for name, value in values.items():
        argument = known.get(name)
        if argument is not None and argument.properties and isinstance(value, Mapping) and not argument.is_secret:
            kept[name] = _remove_secrets(argument.properties, value, may_hold_secrets)
        elif not may_hold_secrets or (argument is not None and argument.is_plain and not argument.is_secret):
            kept[name] = value
    return kept

"""Options and arguments that the commands share: the caller, the server, and the arguments of a tool."""

from argparse import ArgumentParser
from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from mcp_django.auth.principal import ALL_SCOPES, PROJECT_ISSUER, DjangoPrincipal, local_principal
from mcp_django.conf import get_settings
from mcp_django.protocol import jsonrpc
from mcp_django.wiring import list_aliases


def add_caller_options(parser: ArgumentParser, *, user_help: str) -> None:
    """Add `--user` and `--scope`, which `get_command_principal` reads."""
    parser.add_argument("--user", help=user_help)
    parser.add_argument("--scope", action="append", dest="scopes", help="grant only this scope; may be repeated")


def add_server_option(parser: ArgumentParser) -> None:
    """Add `--server`, the alias of one server."""
    parser.add_argument("--server", default="default", choices=list_aliases(), help="the server's alias")


def parse_tool_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a tool from JSON. Raises CommandError unless they are an object."""
    try:
        arguments = jsonrpc.loads_exactly(text)
    except ValueError as problem:
        raise CommandError(f"The arguments are not valid JSON: {problem}") from None
    if not isinstance(arguments, dict):
        raise CommandError("The arguments must be a JSON object")
    return arguments


def remove_protocol_members(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a tool without the members for clients only."""
    return {key: value for key, value in result.items() if key not in ("resultType", "_meta")}


def get_command_principal(username: str | None, scopes: Iterable[str] | None) -> DjangoPrincipal:
    """Return the principal of a user with the given scopes; None grants all.

    Without a username this is the local principal, which may do everything and acts as `MCP["LOCAL_USER"]`. Raises
    CommandError for an unknown user, and for scopes without a user, because the local principal has all scopes.
    """
    if username is None:
        if scopes:
            raise CommandError("--scope requires --user; the local principal has all scopes")
        name = get_settings().local_user
        return local_principal(_get_user(name, ' in MCP["LOCAL_USER"]') if name else None)
    user = _get_user(username)
    held_scopes = frozenset(scopes) if scopes is not None else ALL_SCOPES
    # Issuer and subject are the user's own, so the principal also owns the user's data. `client_id` separates sessions.
    return DjangoPrincipal(
        issuer=PROJECT_ISSUER, subject=str(user.pk), client_id="command", user=user, scopes=held_scopes, kind="command"
    )


def get_active_user(username: str) -> Any:
    """Return the user for a new credential.

    Raises CommandError for an unknown or inactive user.
    """
    user = _get_user(username)
    if not user.is_active:
        raise CommandError(f"The user {username!r} is not active; a token would be refused")
    return user


def _get_user(username: str, source: str = "") -> Any:
    model = get_user_model()
    try:
        return model._default_manager.get_by_natural_key(username)
    except model.DoesNotExist:
        raise CommandError(f"Unknown user {username!r}{source}") from None

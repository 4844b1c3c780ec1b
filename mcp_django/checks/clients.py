"""System checks of `MCP["CLIENTS"]`: packages, programs, encryption and pages.

No check connects to a server.
"""

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from django.core.checks import CheckMessage, Error, Tags, Warning
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, reverse

from mcp_django import conf
from mcp_django.checks.installation import register_check
from mcp_django.conf.clients import ClientSettings

REQUIRED_PACKAGES = {"mcp": "the official SDK", "httpx2": "its HTTP client", "websockets": "for ws:// and wss://"}


@register_check()
def check_clients() -> Iterator[CheckMessage]:
    """Check that required packages and programs are installed."""
    clients = conf.get_settings().clients
    if clients:
        yield from _check_packages()
    for client in clients.values():
        yield from _check_program(client)


@register_check(Tags.security)
def check_client_secrets() -> Iterator[CheckMessage]:
    """Check that credentials are sent with encryption only.

    Otherwise any network node can read them.
    """
    for client in conf.get_settings().clients.values():
        if client.is_unencrypted and client.has_credentials:
            yield Error(
                f'MCP["CLIENTS"]["{client.alias}"] sends credentials over the network without encryption.',
                hint="Use an https or wss URL. In a trusted network, silence this check.",
                id="mcp_django.E051",
            )


@register_check(Tags.urls)
def check_client_pages() -> Iterator[CheckMessage]:
    """Check that users can reach the page on which they authorize a server."""
    users = [client for client in conf.get_settings().clients.values() if client.auth and client.auth.type == "oauth"]
    for client in users:
        if client.per_user and not _has_page(client.alias):
            yield Warning(
                f'MCP["CLIENTS"]["{client.alias}"] requires each user\'s authorization, but the URLconf lacks its '
                "page.",
                hint='path("mcp/clients/", include("mcp_django.contrib.client_pages.urls")); '
                "if `mcp_clients login` is sufficient, silence this check.",
                id="mcp_django.W052",
            )


def _has_page(alias: str) -> bool:
    try:
        return bool(reverse("mcp_clients:connect", kwargs={"alias": alias}))
    except (NoReverseMatch, ImportError, ImproperlyConfigured):
        return False


def _check_packages() -> Iterator[CheckMessage]:
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        yield Error(
            f'MCP["CLIENTS"] names servers, but required packages are not installed: {", ".join(missing)}.',
            hint="pip install 'mcp-django-channels[client]'",
            id="mcp_django.E050",
        )


def _check_program(client: ClientSettings) -> Iterator[CheckMessage]:
    where = f'MCP["CLIENTS"]["{client.alias}"]'
    if client.cwd is not None and not Path(client.cwd).is_dir():
        yield Warning(
            f"{where} starts its program in {client.cwd!r}, which is not a directory on this machine.",
            hint="Use an absolute path, such as BASE_DIR.",
            id="mcp_django.W050",
        )
    if client.command is not None and not _is_program_installed(client):
        yield Warning(
            f"{where} starts {client.command[0]!r}, which is not found on this machine.",
            hint="Install it, or use its absolute path. If another machine runs it, silence this check.",
            id="mcp_django.W051",
        )


def _is_program_installed(client: ClientSettings) -> bool:
    program = (client.command or ("",))[0]
    if "/" in program and not Path(program).is_absolute():
        return (Path(client.cwd or ".") / program).is_file()
    return shutil.which(program, path=client.env.get("PATH")) is not None

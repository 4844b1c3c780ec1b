"""Creation of mounts and proxies from `MOUNTS` and `PROXIES`.

A mount is another server of the project, or a server or toolset from a module. A proxy is a remote server.
"""

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.conf.mounts import MountSettings
from mcp_django.conf.options import ServerSettings
from mcp_django.orm.generic import GenericTools
from mcp_django.providers.mounts import Mount, server_of
from mcp_django.schema import DeclarationError
from mcp_django.server.composition.provider import Provider
from mcp_django.server.primitives.toolset import Toolset
from mcp_django.server.server import Server

GetServer = Callable[[str], Server]


def mounts(alias: str, described: ServerSettings, get_server: GetServer) -> Sequence[Mount]:
    """Create the mounts of a server.

    Raises ImproperlyConfigured with the setting of an invalid mount.
    """
    found = []
    for prefix, settings in described.mounts.items():
        where = f'MCP["SERVERS"]["{alias}"]["MOUNTS"]["{prefix}"]'
        try:
            found.append(_mount(alias, described, prefix, settings, get_server))
        except (DeclarationError, ImportError) as problem:
            raise ImproperlyConfigured(f"{where}: {problem}") from problem
        except ImproperlyConfigured as problem:
            raise ImproperlyConfigured(f"{where}: {problem}") from None
    return found


def proxies(alias: str, described: ServerSettings) -> Sequence[Provider]:
    """Create the proxies of a server.

    Raises ImproperlyConfigured with the setting of an invalid proxy.
    """
    found = []
    for name, settings in described.proxies.items():
        try:
            # Imported by name, because proxies require an extra.
            made: Provider = import_string("mcp_django.contrib.proxies.Proxy")(name, **settings.options())
        except (DeclarationError, ImportError, ImproperlyConfigured) as problem:
            raise ImproperlyConfigured(f'MCP["SERVERS"]["{alias}"]["PROXIES"]["{name}"]: {problem}') from problem
        found.append(made)
    return found


def _mount(alias: str, described: ServerSettings, prefix: str, settings: MountSettings, get_server: GetServer) -> Mount:
    servers, scopes, what = conf.get_settings().servers, settings.scopes, settings.what
    theirs = servers.get(what)
    if theirs is not None:
        scopes = (*scopes, *_asked_of_everybody(described, what, theirs))
    elif "." not in what:
        near = difflib.get_close_matches(what, servers, n=1)
        raise ImproperlyConfigured(f'SERVERS has no "{what}"' + (f'; did you mean "{near[0]}"?' if near else ""))
    found = get_server(what) if theirs is not None else _imported(alias, what)
    return Mount(
        found, prefix=prefix, uri_prefix=settings.uri_prefix, permission=settings.permission or None, scopes=scopes
    )


def _asked_of_everybody(described: ServerSettings, what: str, theirs: ServerSettings) -> Sequence[str]:
    """Return the scopes that a mounted server requires at its own endpoint.

    Raises ImproperlyConfigured for requirements that only the endpoint checks, because the mount would bypass them.
    """
    if theirs.authorizer is not None and theirs.authorizer != described.authorizer:
        raise ImproperlyConfigured(
            f'"{what}" has the AUTHORIZER {theirs.authorizer}, which only its own endpoint applies; set it for this '
            "server, too"
        )
    if not isinstance(theirs.required_scopes, str):
        return theirs.required_scopes
    if theirs.required_scopes != described.required_scopes:
        raise ImproperlyConfigured(
            f'"{what}" computes its REQUIRED_SCOPES by {theirs.required_scopes}, which only its own endpoint applies; '
            "set it for this server, too"
        )
    return ()


def _imported(alias: str, path: str) -> Any:
    found: Any = import_string(path)
    is_toolset = isinstance(found, Toolset) or (isinstance(found, type) and issubclass(found, Toolset))
    if not is_toolset:
        return found
    server = server_of(found, alias=alias, is_told=True)
    if conf.orm_style() == "generic":
        server.providers = (GenericTools(server.registry),)
    return server

"""Construction of mounts and proxies from `MOUNTS` and `PROXIES`.

A mount is another server of the project, or a server or toolset from a module. A proxy is a remote server.
"""

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.conf.options import ServerSettings
from mcp_django.orm.generic import GenericTools
from mcp_django.providers.mounts import Mount, build_toolset_server
from mcp_django.schema import DeclarationError
from mcp_django.server.composition.provider import Provider
from mcp_django.server.primitives.toolset import Toolset
from mcp_django.server.server import Server
from mcp_django.wiring.services import Services

GetServer = Callable[[str], Server]


def build_mounts(services: Services, alias: str, described: ServerSettings, get_server: GetServer) -> Sequence[Mount]:
    """Build the mounts of a server. `get_server` returns the server of another alias.

    Raises ImproperlyConfigured with the setting of an invalid mount.
    """
    result = []
    for prefix in described.mounts:
        setting_path = f'MCP["SERVERS"]["{alias}"]["MOUNTS"]["{prefix}"]'
        try:
            result.append(_build_mount(services, alias, described, prefix, get_server))
        except (DeclarationError, ImportError) as problem:
            raise ImproperlyConfigured(f"{setting_path}: {problem}") from problem
        except ImproperlyConfigured as problem:
            raise ImproperlyConfigured(f"{setting_path}: {problem}") from None
    return result


def build_proxies(alias: str, described: ServerSettings) -> Sequence[Provider]:
    """Build the proxies of a server.

    Raises ImproperlyConfigured with the setting of an invalid proxy.
    """
    result = []
    for name, settings in described.proxies.items():
        try:
            # Imported by name, because proxies require an extra.
            proxy: Provider = import_string("mcp_django.contrib.proxies.Proxy")(name, **settings.options())
        except (DeclarationError, ImportError, ImproperlyConfigured) as problem:
            raise ImproperlyConfigured(f'MCP["SERVERS"]["{alias}"]["PROXIES"]["{name}"]: {problem}') from problem
        result.append(proxy)
    return result


def _build_mount(
    services: Services, alias: str, described: ServerSettings, prefix: str, get_server: GetServer
) -> Mount:
    settings = described.mounts[prefix]
    servers, scopes, what = services.settings.servers, settings.scopes, settings.server
    mounted_settings = servers.get(what)
    if mounted_settings is not None:
        scopes = (*scopes, *_get_endpoint_scopes(described, what, mounted_settings))
    elif "." not in what:
        suggestions = difflib.get_close_matches(what, servers, n=1)
        raise ImproperlyConfigured(
            f'SERVERS has no "{what}"' + (f'; did you mean "{suggestions[0]}"?' if suggestions else "")
        )
    target = get_server(what) if mounted_settings is not None else _import_mount_target(alias, what)
    return Mount(
        target, prefix=prefix, uri_prefix=settings.uri_prefix, permission=settings.permission or None, scopes=scopes
    )


def _get_endpoint_scopes(
    described: ServerSettings, mounted_alias: str, mounted_settings: ServerSettings
) -> Sequence[str]:
    """Return the scopes that a mounted server requires at its own endpoint.

    Raises ImproperlyConfigured for requirements that only the endpoint checks, because the mount would bypass them.
    """
    if mounted_settings.authorizer is not None and mounted_settings.authorizer != described.authorizer:
        raise ImproperlyConfigured(
            f'"{mounted_alias}" has the AUTHORIZER {mounted_settings.authorizer}, which only its own endpoint '
            "applies; set it for this "
            "server, too"
        )
    if not isinstance(mounted_settings.required_scopes, str):
        return mounted_settings.required_scopes
    if mounted_settings.required_scopes != described.required_scopes:
        raise ImproperlyConfigured(
            f'"{mounted_alias}" computes its REQUIRED_SCOPES by {mounted_settings.required_scopes}, which only '
            "its own endpoint applies; "
            "set it for this server, too"
        )
    return ()


def _import_mount_target(alias: str, path: str) -> Any:
    target: Any = import_string(path)
    is_toolset = isinstance(target, Toolset) or (isinstance(target, type) and issubclass(target, Toolset))
    if not is_toolset:
        return target
    server = build_toolset_server(target, alias=alias, publishes_changes=True)
    if conf.orm_style(alias) == "generic":
        server.providers = (GenericTools(server.registry),)
    return server

"""Providers of files, directories, storages and web pages, for `MCP["SERVERS"][alias]["PROVIDERS"]`; toolsets of
documents of OpenAPI, for `register`; servers within servers.

Those that fetch need httpx (`pip install mcp-django-channels[http]`), and are imported at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .files import DirectoryProvider, FileResource
from .mounts import Mount
from .storages import StorageProvider

if TYPE_CHECKING:
    from .http import HTTPProvider, HTTPResource
    from .openapi import OpenAPIToolset, Route

__all__ = [
    "DirectoryProvider",
    "FileResource",
    "HTTPProvider",
    "HTTPResource",
    "Mount",
    "OpenAPIToolset",
    "Route",
    "StorageProvider",
]

_WEB = {"HTTPProvider": "http", "HTTPResource": "http", "OpenAPIToolset": "openapi", "Route": "openapi"}


def __getattr__(name: str) -> Any:
    if name in _WEB:
        return getattr(import_module(f"{__name__}.{_WEB[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WEB})

"""Providers of files, directories, storages and web pages, and mounts.

They are listed in `MCP["SERVERS"][alias]["PROVIDERS"]`. Those that fetch need httpx (`pip install
mcp-django-channels[http]`) and are imported at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcp_django.providers.files.files import DirectoryProvider, FileResource
from mcp_django.providers.files.storages import StorageProvider
from mcp_django.providers.mounts import Mount
from mcp_django.server.composition.provider import Provider

if TYPE_CHECKING:
    from mcp_django.providers.http import HTTPProvider, HTTPResource

__all__ = [
    "DirectoryProvider",
    "FileResource",
    "HTTPProvider",
    "HTTPResource",
    "Mount",
    "Provider",
    "StorageProvider",
]

_LAZY_MODULES = {"HTTPProvider": "http", "HTTPResource": "http"}


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return getattr(import_module(f"{__name__}.{_LAZY_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_MODULES})

"""Providers of files, directories, storages and web pages, for `MCP["SERVERS"][alias]["PROVIDERS"]`.

Those that fetch need httpx (`pip install mcp-django-channels[http]`), and are imported at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .files import DirectoryProvider, FileResource
from .storages import StorageProvider

if TYPE_CHECKING:
    from .http import HTTPProvider, HTTPResource

__all__ = ["DirectoryProvider", "FileResource", "HTTPProvider", "HTTPResource", "StorageProvider"]

_WEB = frozenset({"HTTPProvider", "HTTPResource"})


def __getattr__(name: str) -> Any:
    if name in _WEB:
        return getattr(import_module(f"{__name__}.http"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WEB})

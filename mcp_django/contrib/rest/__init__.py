"""Views of Django REST framework as tools.

`expose` makes tools of one view, `expose_router` of all views of a router. `from_spectacular` makes tools of all views
that drf-spectacular documents. `add_session` gives views an empty session.

Only this package imports rest_framework, so projects without Django REST framework do not need it.
"""

try:
    import rest_framework as rest_framework
except ImportError as missing:
    raise ImportError(
        "mcp_django.contrib.rest needs Django REST framework; install it with pip install 'mcp-django-channels[drf]'"
    ) from missing

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcp_django.contrib.rest.expose import expose
from mcp_django.contrib.rest.expose_router import expose_router
from mcp_django.contrib.rest.requests.sessions import add_session

if TYPE_CHECKING:
    from mcp_django.contrib.rest.openapi_document import from_spectacular

__all__ = ["add_session", "expose", "expose_router", "from_spectacular"]


def __getattr__(name: str) -> Any:
    if name == "from_spectacular":  # needs drf-spectacular and the extra `openapi`
        return getattr(import_module(f"{__name__}.openapi_document"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "from_spectacular"})

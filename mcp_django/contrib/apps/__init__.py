"""Apps: HTML of the server that clients show for the results of its tools (MCP Apps).

INSTALLED_APPS = [..., "mcp_django.contrib.apps"]
MCP = {"SERVERS": {"default": {"EXTENSIONS": ["mcp_django.contrib.apps.Apps"]}}}

app("cart", template="shop/cart.html")

@tool(ui="cart")
def show_cart(number: int) -> ToolResult: ...
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcp_django.contrib.apps.csp import CSP
from mcp_django.contrib.apps.declaration import App, app

if TYPE_CHECKING:
    from mcp_django.contrib.apps.extension import Apps, has_apps
    from mcp_django.contrib.apps.form_tools import form_tool
    from mcp_django.contrib.apps.pages import render_result

__all__ = ["CSP", "App", "Apps", "app", "form_tool", "has_apps", "render_result"]

_LAZY = {"Apps": "extension", "form_tool": "form_tools", "has_apps": "extension", "render_result": "pages"}


def __getattr__(name: str) -> Any:
    # Lazy, because Django imports this package before its apps are ready.
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Template tags of apps: the bridge, and static files inside the page.

{% load mcp_apps %}
{% app_css "shop/cart.css" %} {% app_bridge %} {% app_js "shop/cart.js" %}
"""

import json
from pathlib import Path
from typing import Any

from django import template
from django.forms.utils import flatatt
from django.template import Context
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

from mcp_django.contrib.apps.static_files import escape_script, read_data_url, read_script, read_style

register = template.Library()
_BRIDGE = Path(__file__).parent.parent / "static" / "mcp_apps"


@register.simple_tag(takes_context=True)
def app_bridge(context: Context) -> SafeString:
    """Insert the bridge to the host, with the global `mcpApp`."""
    app = context.get("mcp_app")
    settings = {} if app is None else {"name": app.name, "tool": app.tool, "prefix": app.prefix}
    scripts = [escape_script((_BRIDGE / name).read_text(encoding="utf-8")) for name in ("bridge.js", "question.js")]
    script = SafeString("\n".join(scripts))
    return format_html('<script data-app="{}">{}</script>', json.dumps(settings), script)


@register.simple_tag(takes_context=True)
def app_js(context: Context, path: str) -> SafeString:
    """Insert a static script, or load it from the origin of the static files."""
    if _loads_static(context):
        return format_html('<script src="{}"></script>', static(path))
    return format_html("<script>{}</script>", SafeString(read_script(path)))


@register.simple_tag(takes_context=True)
def app_css(context: Context, path: str) -> SafeString:
    """Insert a static stylesheet, or load it from the origin of the static files."""
    if _loads_static(context):
        return format_html('<link rel="stylesheet" href="{}">', static(path))
    return format_html("<style>{}</style>", SafeString(read_style(path)))


@register.simple_tag(takes_context=True)
def app_image(context: Context, path: str, alt: str = "", **attributes: Any) -> SafeString:
    """Insert a static image, or load it from the origin of the static files."""
    source = static(path) if _loads_static(context) else read_data_url(path)
    return format_html('<img src="{}" alt="{}"{}>', source, alt, flatatt(attributes))


def _loads_static(context: Context) -> bool:
    app = context.get("mcp_app")
    return bool(app is not None and app.loads_static)

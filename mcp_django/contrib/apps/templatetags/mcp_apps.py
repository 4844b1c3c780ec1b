"""Template tags of apps: the bridge, and static files inside the page.

{% load mcp_apps %}
{% app_css "shop/cart.css" %} {% app_bridge %} {% app_js "shop/cart.js" %}
"""

import json
from pathlib import Path
from typing import Any

from django import template
from django.forms import BaseForm, BoundField
from django.forms.utils import flatatt
from django.template import Context
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils.html import format_html, json_script
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from mcp_django.contrib.apps.form_fields import get_field_type, render_widget
from mcp_django.contrib.apps.static_files import escape_script, read_data_url, read_script, read_style
from mcp_django.extensions.schemas import to_json

register = template.Library()
_SCRIPTS = Path(__file__).parent.parent / "static" / "mcp_apps"


@register.simple_tag(takes_context=True)
def app_bridge(context: Context) -> SafeString:
    """Insert the bridge to the host, with the global `mcpApp`, and the elements that call tools."""
    app = context.get("mcp_app")
    settings = {} if app is None else {"name": app.name, "tool": app.tool, "prefix": app.prefix}
    names = ("bridge.js", "elements.js", "question.js")
    scripts = [escape_script((_SCRIPTS / name).read_text(encoding="utf-8")) for name in names]
    script = SafeString("\n".join(scripts))
    return format_html('<script data-app="{}">{}</script>', json.dumps(settings), script)


@register.simple_tag(takes_context=True)
def app_model(context: Context, *names: str) -> SafeString:
    """Insert the constants and scripts of the ready-made apps of models: `{% app_model "card" "table" %}`."""
    scripts = [(_SCRIPTS / "model" / f"{name}.js").read_text(encoding="utf-8") for name in ("model", *names)]
    if "chart" in names:
        scripts.insert(0, (_SCRIPTS / "uplot" / "uPlot.iife.min.js").read_text(encoding="utf-8"))
    script = SafeString("\n".join(escape_script(text) for text in scripts))
    return json_script(context.get("mcp_model", {}), "mcp-model") + format_html("<script>{}</script>", script)


@register.simple_tag
def app_model_style(*names: str) -> SafeString:
    """Insert the stylesheet of the ready-made apps of models: `{% app_model_style "chart" %}`."""
    paths = [_SCRIPTS / "model" / "model.css", *([_SCRIPTS / "uplot" / "uPlot.min.css"] if "chart" in names else [])]
    return format_html("<style>{}</style>", SafeString("\n".join(path.read_text(encoding="utf-8") for path in paths)))


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


@register.simple_tag
def app_form(
    form: BaseForm,
    *,
    tool: str,
    target: str = "",
    submit: str | None = None,
    reset: bool = False,
    nest: str = "",
    **arguments: Any,
) -> SafeString:
    """Render a form whose button and Enter key call a tool.

    Errors of the tool return to their fields. A success is shown below the button, unless the result has HTML for
    `target`. `target` is the selector of the element that gets the HTML of the result.
    `arguments` are further arguments of the tool. `nest` is the argument that takes the fields as an object.
    """
    fields = [_render_field(bound) for bound in form if not bound.is_hidden]
    hidden = [bound.as_hidden({"data-mcp-type": get_field_type(bound).name}) for bound in form.hidden_fields()]
    attributes = {
        "data-mcp-tool": tool,
        "data-mcp-target": target or None,
        "data-mcp-args": json.dumps(to_json(arguments)) if arguments else None,
        "data-mcp-nest": nest or None,
        "data-mcp-reset": reset,
    }
    context = {
        "form": form,
        "fields": fields,
        "hidden_fields": hidden,
        "submit": gettext("Save") if submit is None else submit,
        "success": gettext("Saved.") if submit is None else gettext("Done"),
        "attributes": flatatt({name: value for name, value in attributes.items() if value is not None}),
    }
    return render_to_string("mcp_apps/form.html", context)


def _render_field(bound: BoundField) -> dict[str, Any]:
    """Return the parts of a field for the template."""
    kind = get_field_type(bound)
    identifier = bound.auto_id or f"id_{bound.html_name}"
    described = f"{identifier}_errors" if bound.errors else ""
    if bound.help_text:
        described = f"{described} {identifier}_helptext".strip()
    attributes: dict[str, str | bool] = {"aria-describedby": described} if described else {}
    if bound.errors:
        attributes["aria-invalid"] = "true"
    is_group = getattr(bound.field.widget, "use_fieldset", False)
    return {
        "bound": bound,
        "id": identifier,
        "type": kind.name,
        "omits_empty": kind.omits_empty,
        "is_group": is_group,
        "widget": render_widget(bound, attributes),
    }

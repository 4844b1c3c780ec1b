"""Template tags of apps: files inside the page or at their origin, the bridge, and forms."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from django import forms
from django.contrib.staticfiles.storage import ManifestFilesMixin, StaticFilesStorage
from django.core.exceptions import SuspiciousFileOperation
from django.template import Context, Template

from mcp_django.contrib.apps.pages import PageSettings
from mcp_django.contrib.apps.static_files import StaticFileMissing

INSIDE = PageSettings(name="cart", title="Cart", tool="show_cart", prefix="shop__", loads_static=False)
AT_ORIGIN = PageSettings(name="cart", title="Cart", tool="show_cart", prefix="", loads_static=True)


def render(source: str, app: PageSettings | None = INSIDE, **context: Any) -> str:
    return Template("{% load mcp_apps %}" + source).render(Context({"mcp_app": app, **context}))


class CartForm(forms.Form):
    title = forms.CharField(max_length=20, help_text="Shown on the receipt")
    quantity = forms.IntegerField(min_value=1)
    day = forms.DateField(required=False)
    gift = forms.BooleanField(required=False)
    size = forms.ChoiceField(choices=[("s", "Small"), ("l", "Large")], widget=forms.RadioSelect)
    tags = forms.MultipleChoiceField(choices=[("a", "A"), ("b", "B")], required=False)
    number = forms.IntegerField(widget=forms.HiddenInput, initial=3)


def test_files_are_inside_the_page(static_folder: Path) -> None:
    (static_folder / "cart.css").write_text("p { color: red }")
    (static_folder / "cart.js").write_text("start()")
    (static_folder / "dot.png").write_bytes(b"\x89PNG")
    assert render('{% app_css "cart.css" %}') == "<style>p { color: red }</style>"
    assert render('{% app_js "cart.js" %}') == "<script>start()</script>"
    data = base64.b64encode(b"\x89PNG").decode()
    assert render('{% app_image "dot.png" alt=alt width=3 %}', alt="A <dot>") == (
        f'<img src="data:image/png;base64,{data}" alt="A &lt;dot&gt;" width="3">'
    )


def test_files_cannot_end_their_element(static_folder: Path) -> None:
    (static_folder / "cart.css").write_text('p::after { content: "</STYLE><script>" }')
    (static_folder / "cart.js").write_text('x = "</script ><!-- ";')
    assert render('{% app_css "cart.css" %}') == r'<style>p::after { content: "\3c /STYLE><script>" }</style>'
    assert render('{% app_js "cart.js" %}') == r'<script>x = "\x3c/script >\x3c!-- ";</script>'


def test_files_are_at_the_origin_of_the_static_files(settings: Any) -> None:
    settings.STATIC_URL = "https://static.example.com/"
    source = '{% app_css "a.css" %}{% app_js "a.js" %}{% app_image "a.png" %}'
    assert render(source, AT_ORIGIN) == (
        '<link rel="stylesheet" href="https://static.example.com/a.css">'
        '<script src="https://static.example.com/a.js"></script><img src="https://static.example.com/a.png" alt="">'
    )


def test_files_are_as_collectstatic_has_processed_them(
    static_folder: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Storage(ManifestFilesMixin, StaticFilesStorage):  # type: ignore[misc]
        pass

    (static_folder / "a.css").write_text("source")
    root = tmp_path / "collected"
    root.mkdir()
    (root / "a.1234.css").write_text("processed")
    (root / "staticfiles.json").write_text(json.dumps({"version": "1.1", "paths": {"a.css": "a.1234.css"}, "hash": ""}))
    monkeypatch.setattr("mcp_django.contrib.apps.static_files.staticfiles_storage", Storage(location=str(root)))
    assert render('{% app_css "a.css" %}') == "<style>processed</style>"


@pytest.mark.parametrize("tag", ['app_css "lost.css"', 'app_js "../settings.py"', 'app_image "lost.png"'])
def test_a_missing_file_fails(static_folder: Path, tag: str) -> None:
    with pytest.raises((StaticFileMissing, SuspiciousFileOperation)):
        render(f"{{% {tag} %}}")


def test_the_bridge_has_the_names_of_app_and_tool_and_no_dependency() -> None:
    html = render("{% app_bridge %}")
    [data] = re.findall(r'data-app="([^"]*)"', html)
    assert json.loads(data.replace("&quot;", '"')) == {"name": "cart", "tool": "show_cart", "prefix": "shop__"}
    assert html.count("<script") == html.count("</script>") == 1
    assert "import " not in re.sub(r"/\*.*?\*/", "", html, flags=re.DOTALL)
    assert len(html) < 32_000


def test_a_form_calls_a_tool_without_a_submit_event() -> None:
    html = render('{% app_form form tool="save_cart" target="#list" submit="Buy" cart=3 %}', form=CartForm())
    assert '<form data-mcp-args="{&quot;cart&quot;: 3}" data-mcp-target="#list" data-mcp-tool="save_cart">' in html
    assert '<button type="button" data-mcp-submit>Buy</button>' in html
    assert "action=" not in html
    assert "csrf" not in html


@pytest.mark.parametrize(
    ("name", "kind", "omits_empty"),
    [
        ("title", "string", False),
        ("quantity", "integer", True),
        ("day", "string", True),
        ("gift", "boolean", True),
        ("size", "string", True),
        ("tags", "array", False),
    ],
)
def test_a_field_has_the_type_of_its_argument(name: str, kind: str, omits_empty: bool) -> None:
    html = render('{% app_form form tool="save_cart" %}', form=CartForm())
    [rest] = re.findall(rf'data-mcp-field="{name}" data-mcp-type="{kind}"( data-mcp-omit)?>', html)
    assert bool(rest) is omits_empty


def test_dates_have_the_controls_of_the_browser_and_hidden_fields_their_type() -> None:
    html = render('{% app_form form tool="save_cart" %}', form=CartForm(initial={"day": "2026-01-31"}))
    assert '<input type="date" name="day" value="2026-01-31" id="id_day">' in html
    assert '<input type="hidden" name="number" value="3" data-mcp-type="integer" id="id_number">' in html
    assert "<legend>Size</legend>" in html


def test_errors_of_a_bound_form_belong_to_their_fields() -> None:
    html = render('{% app_form form tool="save_cart" %}', form=CartForm({"title": "<b>", "quantity": "0"}))
    assert '<ul class="errorlist" id="id_quantity_errors" data-mcp-errors><li>Ensure this value' in html
    [control] = re.findall(r'<input type="number"[^>]*name="quantity"[^>]*>', html)
    assert 'aria-invalid="true"' in control
    assert 'aria-describedby="id_quantity_errors"' in control
    assert 'value="&lt;b&gt;"' in html
    assert 'aria-describedby="id_title_helptext"' in html

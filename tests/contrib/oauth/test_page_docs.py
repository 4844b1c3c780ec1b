"""Templates and options of docs/protect/oauth-pages.md."""

import re
from pathlib import Path

import pytest
from django.template import Context, Engine
from django.test import Client

import mcp_django
import mcp_django.contrib.oauth
from mcp_django.contrib.oauth.options import OAuthSettings

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "protect" / "oauth-pages.md").read_text()
TEMPLATES = Path(mcp_django.contrib.oauth.__file__).with_name("templates")
SHARED = Path(mcp_django.__file__).parent


def test_the_documented_blocks_exist() -> None:
    base = (TEMPLATES / "mcp_oauth" / "base.html").read_text()
    assert base.startswith('{% extends "mcp_django/page.html" %}')
    base += (SHARED / "templates" / "mcp_django" / "page.html").read_text()
    for block in ("brand", "navigation", "styles", "footer"):
        assert f"`{block}`" in PAGE
        assert f"{{% block {block} %}}" in base


def test_the_documented_colours_exist() -> None:
    style = (SHARED / "static" / "mcp_django" / "pages.css").read_text()
    named = re.findall(r"`(--\w+)`", PAGE)
    assert named
    for name in named:
        assert f"{name}:" in style


def test_the_templates_work(tmp_path: Path, subtests: pytest.Subtests) -> None:
    templates = re.findall(r"```html\n(.*?)```", PAGE, re.DOTALL)
    assert len(templates) == 2
    for lines in templates:
        with subtests.test(lines=lines):
            own = tmp_path / "mcp_oauth" / "base.html"
            own.parent.mkdir(exist_ok=True)
            own.write_text(lines)
            libraries = {"i18n": "django.templatetags.i18n", "static": "django.templatetags.static"}
            dirs = [str(tmp_path), str(TEMPLATES), str(SHARED / "templates")]
            engine = Engine(dirs=dirs, libraries=libraries)
            shown = engine.get_template("mcp_oauth/signed_out.html").render(Context({"login_url": "/in/"}))
            assert "The shop" in shown or "/static/shop/oauth.css" in shown
            assert "You are signed out" in shown


def test_the_documented_options_exist(subtests: pytest.Subtests) -> None:
    for name in ("REMEMBER_CONSENT", "REMEMBER_LOOPBACK", "PERSONAL_TOKENS", "PERSONAL_TOKEN_DAYS"):
        with subtests.test(name=name):
            assert name in PAGE
            assert name.lower() in OAuthSettings.__dataclass_fields__


@pytest.mark.django_db
def test_the_documented_pages_exist(site: None, subtests: pytest.Subtests) -> None:
    places = re.findall(r"^\| `(/o/\w+/)`", PAGE, re.MULTILINE)
    assert len(places) == 4
    for place in places:
        with subtests.test(place=place):
            assert Client().get(place).status_code in (302, 405)

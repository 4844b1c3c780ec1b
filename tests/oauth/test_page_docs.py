"""What docs/topics/oauth-pages.md says of templates and options is so."""

import re
from pathlib import Path

import pytest
from django.template import Context, Engine
from django.test import Client

import mcp_django
import mcp_django.oauth
from mcp_django.oauth.options import OAuthSettings

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "topics" / "oauth-pages.md").read_text()
TEMPLATES = Path(mcp_django.oauth.__file__).with_name("templates")
SHARED = Path(mcp_django.__file__).parent


def test_the_blocks_are_there() -> None:
    base = (TEMPLATES / "mcp_oauth" / "base.html").read_text()
    assert base.startswith('{% extends "mcp_django/page.html" %}')
    base += (SHARED / "templates" / "mcp_django" / "page.html").read_text()
    for block in ("brand", "navigation", "styles", "footer"):
        assert f"`{block}`" in PAGE
        assert f"{{% block {block} %}}" in base


def test_the_colours_are_there() -> None:
    style = (SHARED / "static" / "mcp_django" / "pages.css").read_text()
    named = re.findall(r"`(--\w+)`", PAGE)
    assert named
    for name in named:
        assert f"{name}:" in style


@pytest.mark.parametrize("lines", re.findall(r"```html\n(.*?)```", PAGE, re.DOTALL), ids=["brand", "styles"])
def test_the_templates_work(lines: str, tmp_path: Path) -> None:
    own = tmp_path / "mcp_oauth" / "base.html"
    own.parent.mkdir()
    own.write_text(lines)
    libraries = {"i18n": "django.templatetags.i18n", "static": "django.templatetags.static"}
    dirs = [str(tmp_path), str(TEMPLATES), str(SHARED / "templates")]
    engine = Engine(dirs=dirs, libraries=libraries)
    shown = engine.get_template("mcp_oauth/signed_out.html").render(Context({"login_url": "/in/"}))
    assert "The shop" in shown or "/static/shop/oauth.css" in shown
    assert "You are signed out" in shown


@pytest.mark.parametrize("name", ["REMEMBER_CONSENT", "REMEMBER_LOOPBACK", "PERSONAL_TOKENS", "PERSONAL_TOKEN_DAYS"])
def test_the_options_are_there(name: str) -> None:
    assert name in PAGE
    assert name.lower() in OAuthSettings.__dataclass_fields__


@pytest.mark.django_db
@pytest.mark.parametrize("place", re.findall(r"^\| `(/o/\w+/)`", PAGE, re.MULTILINE))
def test_the_pages_are_there(site: None, place: str) -> None:
    assert Client().get(place).status_code in (302, 405)

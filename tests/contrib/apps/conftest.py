"""A server with apps, its templates and its static files."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_django import Server
from mcp_django.contrib.apps import Apps

PAGE = """<!doctype html>
{% load mcp_apps %}
<html><head><title>{{ mcp_app.title }}</title>{% app_bridge %}</head><body>{{ greeting }}</body></html>
"""
_aliases = itertools.count()


@pytest.fixture
def templates(settings: Any) -> dict[str, str]:
    """Templates by name, in place of those of the project. The package's own are found as well."""
    sources: dict[str, str] = {"page.html": PAGE}
    settings.TEMPLATES = [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "loaders": [
                    ("django.template.loaders.locmem.Loader", sources),
                    "django.template.loaders.app_directories.Loader",
                ],
                "context_processors": ["django.template.context_processors.request"],
            },
        }
    ]
    return sources


@pytest.fixture
def static_folder(settings: Any, tmp_path: Path) -> Path:
    """Folder of static files, which the finders search."""
    folder = tmp_path / "static"
    folder.mkdir()
    settings.STATICFILES_DIRS = [str(folder)]
    settings.STATIC_URL = "/static/"
    return folder


@pytest.fixture
def make_app_server(templates: dict[str, str]) -> Callable[..., Server]:
    """Function that creates a server with the extension, under an alias of its own."""

    def make(**options: Any) -> Server:
        return Server("Shop", alias=f"apps{next(_aliases)}", extensions=[Apps()], **options)

    return make

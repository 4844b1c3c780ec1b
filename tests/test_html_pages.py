"""HTML pages: invisible characters are removed, and fields of forms keep their values."""

import ast
from pathlib import Path

import pytest
from django.http import HttpResponse
from django.template import engines
from django.template.response import SimpleTemplateResponse

import mcp_django
from mcp_django.html_pages import clean_html, clean_response

PACKAGE = Path(mcp_django.__file__).parent
APPS_OF_AUTHORS = {"contrib/apps/pages.py", "contrib/apps/templatetags/mcp_apps.py"}
"""Modules with pages that the project's author writes for a host."""


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>a\u202eb\x1b[31m\u2800</p>\n", "<p>ab[31m</p>\n"),
        ("<p>Zürich, 👩‍🚒 5\u00a0km, 1\u202f000</p>", "<p>Zürich, 👩‍🚒 5\u00a0km, 1\u202f000</p>"),
        ('<a title="\u202e">x</a><input value="\u202e"> \u202e', '<a title="">x</a><input value="\u202e"> '),
        ("\u202e<textarea rows=2>\u202e\n\x1b</textarea>\u202e", "<textarea rows=2>\u202e\n\x1b</textarea>"),
        ("value=&quot;\u202e&quot;", "value=&quot;&quot;"),
    ],
)
def test_invisible_characters_are_removed_outside_of_fields(page: str, expected: str) -> None:
    assert clean_html(page) == expected


def test_a_page_is_cleaned_when_it_is_rendered() -> None:
    template = engines["django"].from_string("{{ name }}")
    response = SimpleTemplateResponse(template, {"name": "a\u202eb"})
    clean_response(response)
    assert response.render().content == b"ab"


def test_other_responses_are_unchanged() -> None:
    data = "\u202e".encode()
    assert clean_response(HttpResponse(data, content_type="text/csv")).content == data


def test_pages_are_rendered_by_the_module_that_cleans_them() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
            if {"render", "render_to_string"} & names:
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"html_pages.py", *APPS_OF_AUTHORS}

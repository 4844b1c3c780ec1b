"""Admin pages show no deceptive characters of the rows."""

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse

from mcp_django.models import StoredPrompt
from tests.support.admin_pages import iter_admin_paths
from tests.support.package_rows import PACKAGE_LABELS, create_package_rows

pytestmark = pytest.mark.django_db
HOSTILE = "a\u202eb\x1bc\u2800d"
INVISIBLE = set("\u202e\x1b\u2800")
OTHER_PAGES = ("admin:index",)


def iter_shown(page: str) -> Iterator[str]:
    """Yield the texts of a page. The values of form fields are not among them, because they are saved again."""
    page = re.sub(r"<textarea.*?</textarea>|(?<=\s)value=\"[^\"]*\"", "", page, flags=re.DOTALL)
    yield from html.unescape(page).split("\n")


@pytest.fixture
def browser(settings: Any) -> Client:
    settings.MCP = {**settings.MCP, "PLAYGROUND": {"ENABLED": True}}
    create_package_rows(HOSTILE)
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    return browser


def test_no_page_shows_invisible_characters(browser: Client, subtests: pytest.Subtests) -> None:
    paths = [*iter_admin_paths(PACKAGE_LABELS), *map(reverse, OTHER_PAGES)]
    shown = 0
    for path in paths:
        with subtests.test(path=path):
            response: Any = browser.get(path)
            assert response.status_code < 500
            shown += response.status_code == 200 and "bcd" in response.content.decode()
            found = [line.strip() for line in iter_shown(response.content.decode()) if INVISIBLE & set(line)]
            assert found == []
    assert shown > 50


def test_forms_keep_the_stored_values(browser: Client) -> None:
    row = StoredPrompt.objects.get()
    page = html.unescape(browser.get(reverse("admin:mcp_django_storedprompt_change", args=[row.pk])).content.decode())
    assert f'value="{row.title}"' in page
    assert f"{row.description}</textarea>" in page


def test_the_log_of_the_admin_has_clean_names(browser: Client) -> None:
    row = StoredPrompt.objects.get()
    model_admin = admin.site.get_model_admin(StoredPrompt)
    request: Any = HttpRequest()
    request.user = User.objects.get(username="root")
    model_admin.log_addition(request, row, "added")
    model_admin.log_change(request, row, "changed")
    model_admin.log_deletions(request, StoredPrompt.objects.all())
    names = set(LogEntry.objects.values_list("object_repr", flat=True))
    assert INVISIBLE & set(str(row))
    assert len(LogEntry.objects.all()) == 3
    assert not INVISIBLE & set("".join(names))

"""Admin pages show no characters that deceive, whatever the rows hold."""

import html
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import models
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from mcp_django.models import StoredPrompt
from tests.support.admin_pages import iter_admin_paths

pytestmark = pytest.mark.django_db
HOSTILE = "a\u202eb\x1bc\u2800d"
INVISIBLE = set("\u202e\x1b\u2800")
LABELS = ("mcp_django", "mcp_control_room", "mcp_memory", "mcp_oauth", "mcp_skills", "mcp_tasks")
"""Apps of the package."""
OTHER_PAGES = ("admin:index",)


def build_value(field: Any) -> Any:
    """Return a hostile value for a column."""
    if field.choices:
        return field.flatchoices[0][0]
    match field:
        case models.JSONField():
            default = field.get_default()
            return {HOSTILE: HOSTILE} if isinstance(default, dict) else [HOSTILE]
        case models.CharField() | models.TextField():
            text = HOSTILE + field.name
            return text[: field.max_length] if field.max_length else text
        case models.DateTimeField():
            return timezone.now()
        case models.BooleanField():
            return True
        case models.DurationField():
            return timedelta(days=1)
        case models.UUIDField():
            return uuid4()
        case models.GenericIPAddressField():
            return "192.0.2.1"
        case models.BinaryField():
            return b""
        case models.FloatField() | models.IntegerField():
            return 1
    raise AssertionError(f"{field} has no value")


def create_rows() -> list[models.Model]:
    """Create a row of each model of the package with hostile values, and return them."""
    user = User.objects.create(username=f"user{HOSTILE}")
    made: dict[type[models.Model], models.Model | None] = {User: user}

    def create(model: Any) -> Any:
        if model not in made:
            made[model] = None  # for models that refer to each other
            values = {}
            for field in model._meta.concrete_fields:
                if field.remote_field is not None:
                    values[field.name] = create(field.related_model)
                elif not isinstance(field, models.AutoField):
                    values[field.name] = build_value(field)
            [made[model]] = model._base_manager.bulk_create([model(**values)])
        return made[model]

    for label in LABELS:
        for model in apps.get_app_config(label).get_models():
            if model._meta.managed and not model._meta.proxy:
                create(model)
    return [row for row in made.values() if row is not None]


def iter_shown(page: str) -> Iterator[str]:
    """Yield the texts of a page. The values of form fields are not among them, because they are saved again."""
    page = re.sub(r"<textarea.*?</textarea>|(?<=\s)value=\"[^\"]*\"", "", page, flags=re.DOTALL)
    yield from html.unescape(page).split("\n")


@pytest.fixture
def browser(settings: Any) -> Client:
    settings.MCP = {**settings.MCP, "PLAYGROUND": {"ENABLED": True}}
    create_rows()
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    return browser


def test_no_page_shows_invisible_characters(browser: Client, subtests: pytest.Subtests) -> None:
    paths = [*iter_admin_paths(LABELS), *map(reverse, OTHER_PAGES)]
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

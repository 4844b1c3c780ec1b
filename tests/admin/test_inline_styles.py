"""Pages of the admin under a strict Content-Security-Policy: no styles, scripts or event handlers in the markup."""

import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import NoReverseMatch, reverse

from mcp_django.models import PersonalAccessToken, StoredMessage, StoredPrompt, ToolPolicy

pytestmark = pytest.mark.django_db
INLINE = re.compile(
    r"<[a-z][^>]*\s(?:style|on\w+)=[\"'][^>]*>|<style\b[^>]*>|<script(?![^>]*\bsrc=)(?![^>]*json)[^>]*>"
)


@pytest.fixture
def browser(client: Client) -> Client:
    superuser: Any = get_user_model()._default_manager.create_user("superuser", is_staff=True, is_superuser=True)
    PersonalAccessToken.issue(user=superuser, name="ci", expires=None)
    ToolPolicy.objects.create(tool="x", rate="1/m")
    prompt = StoredPrompt.objects.create(name="hello")
    StoredMessage.objects.create(prompt=prompt, text="Hi", position=1)
    client.force_login(superuser)
    return client


def test_no_page_has_inline_styles_or_scripts(browser: Client, subtests: pytest.Subtests) -> None:
    for model in [model for model in admin.site._registry if model.__module__.startswith("mcp_django")]:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        row = model._default_manager.first()
        for kind, args in (("changelist", []), ("add", []), ("change", [row.pk] if row else None)):
            try:
                url = reverse(f"{name}_{kind}", args=args)
            except NoReverseMatch:
                continue
            with subtests.test(url):
                response = browser.get(url)
                if response.status_code == 200:
                    assert INLINE.findall(response.content.decode()) == []


def test_arguments_of_prompts_have_labels_of_their_own(browser: Client) -> None:
    """Django takes the labels of tabular inlines from the header, where screen readers do not find them."""
    page = browser.get(reverse("admin:mcp_django_storedprompt_add")).content.decode()
    fields = set(
        re.findall(r'id="(id_arguments-__prefix__-(?:name|title|description|default|choices|position))"', page)
    )
    assert len(fields) == 6
    assert fields <= set(re.findall(r'<label[^>]* for="([^"]+)"', page))

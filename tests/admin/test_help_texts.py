"""Help texts of the admin: the admin classes declare them, and no field of a model of the package has one."""

import html
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils.functional import Promise

from mcp_django.admin.external_identity import ExternalIdentityAdmin
from mcp_django.admin.rules import ScopeGrantAdmin
from mcp_django.admin.stored_prompt import ArgumentInline, StoredPromptAdmin
from mcp_django.models import ExternalIdentity


def list_package_models() -> list[type[Any]]:
    """Return the models of the package."""
    return [model for model in apps.get_models() if model.__module__.startswith("mcp_django.")]


def iter_declared_texts() -> Iterator[tuple[type[Any], str, object]]:
    """Yield (model, name of the field, text) of each help text that an admin class or an inline declares."""
    for model, model_admin in admin.site._registry.items():
        for declaring in (model_admin, *model_admin.inlines):
            for name, text in getattr(declaring, "help_texts", {}).items():
                yield (model if declaring is model_admin else declaring.model), name, text


def test_no_field_of_a_model_has_a_help_text() -> None:
    fields = [field for model in list_package_models() for field in model._meta.get_fields()]
    assert len(fields) > 200
    found = [str(field) for field in fields if getattr(field, "help_text", "")]
    assert not found, "declare the texts in `help_texts` of the admin class: a new wording would need a migration"


def test_each_help_text_is_of_a_field_of_the_model_and_is_translated_lazily() -> None:
    declared = list(iter_declared_texts())
    assert len(declared) > 20
    wrong = [
        f"{model.__name__}.{name}"
        for model, name, text in declared
        if name not in {field.name for field in model._meta.get_fields()} or not isinstance(text, Promise)
    ]
    assert wrong == []


@pytest.mark.django_db
def test_pages_show_the_help_texts(subtests: pytest.Subtests) -> None:
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    row = ExternalIdentity.objects.create(issuer="https://id.example", subject="1", user=User.objects.get())

    for subject, path, text in (
        ("a field of the model", reverse("admin:mcp_django_storedprompt_add"), StoredPromptAdmin.help_texts["name"]),
        ("a field of the form", reverse("admin:mcp_django_scopegrant_add"), ScopeGrantAdmin.help_texts["groups"]),
        ("a field of an inline", reverse("admin:mcp_django_storedprompt_add"), ArgumentInline.help_texts["name"]),
        (
            "a field that is shown only",
            reverse("admin:mcp_django_externalidentity_change", args=[row.pk]),
            ExternalIdentityAdmin.help_texts["subject"],
        ),
    ):
        with subtests.test(subject):
            assert str(text) in html.unescape(browser.get(path).content.decode())

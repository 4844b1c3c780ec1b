"""The overview of the app in the admin."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

pytestmark = pytest.mark.django_db


def test_each_page_is_explained() -> None:
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    page = browser.get(reverse("admin:app_list", args=["mcp_django"])).content.decode()
    overview = page[page.index("mcp-overview") :].split("</dl>")[0]
    models = [model for model in admin.site._registry if model._meta.app_label == "mcp_django"]
    cells = [cell.split("</dd>")[0].strip() for cell in overview.split("<dd>")[1:]]
    assert len(cells) == len(models) >= 9
    assert all(cell.endswith(".") for cell in cells)
    assert "Remote servers" in overview


def test_pages_of_others_are_left_out() -> None:
    viewer = User.objects.create_user("vera", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_toolpolicy"))
    browser = Client()
    browser.force_login(viewer)
    page = browser.get(reverse("admin:app_list", args=["mcp_django"])).content.decode()
    assert "Rules that disable tools" in page
    assert "Create and revoke them here" not in page

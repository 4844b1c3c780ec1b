"""The recipe for pages of Wagtail: drafts, revisions, publication, and the rights of Wagtail's groups."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group, Permission, User
from wagtail.models import GroupPagePermission, Locale, Page

from mcp_django.testing import TestClient
from tests.recipes.pages import Recipe

pytestmark = pytest.mark.django_db


@pytest.fixture
def section(monkeypatch: pytest.MonkeyPatch) -> Page:
    """A section of the site, beside which there is another one. Its pages are plain pages."""
    monkeypatch.setattr(Page, "is_creatable", True)
    monkeypatch.setattr(Page, "_clean_subpage_models", None)
    Locale.objects.get_or_create(language_code="en")
    root = Page.get_first_root_node() or Page.add_root(title="Root", slug="root")
    root.add_child(title="Other", slug="other")
    section: Page = root.add_child(title="News", slug="news")
    return section


def add_editor(section: Page, *actions: str) -> User:
    """Add a user whose group has these permissions on the pages of a section."""
    user = User.objects.create_user("editor")
    group = Group.objects.create(name="Editors of a section")
    for action in actions:
        permission = Permission.objects.get(content_type__app_label="wagtailcore", codename=f"{action}_page")
        GroupPagePermission.objects.create(group=group, page=section, permission=permission)
    group.permissions.add(Permission.objects.get(codename="access_admin"))
    user.groups.add(group)
    return User.objects.get(pk=user.pk)


def call(client: TestClient, tool: str, **arguments: Any) -> Any:
    """Return the structured result of a call, or the text of its error."""
    answer = async_to_sync(client.call_tool)(f"page_{tool}", arguments)
    return answer["content"][0]["text"] if answer.get("isError") else answer["structuredContent"]


def test_editor_writes_drafts_in_the_own_section_only(section: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Recipe("wagtail", "TreeToolset", monkeypatch).client(add_editor(section, "add", "change"))
    assert [row["title"] for row in call(client, "list")["items"]] == ["News"]
    other = Page.objects.get(slug="other")
    values = {"title": "Tea", "slug": "tea", "parent": section.pk}
    page = Page.objects.get(pk=call(client, "create", values=values)["pk"])
    assert (page.live, page.owner.username, page.get_parent().pk) == (False, "editor", section.pk)
    assert page.latest_revision.user.username == "editor"
    assert "There is no page" in call(client, "update", pk=other.pk, values={"title": "X"})
    assert "Give a parent below which you may add pages" in call(
        client, "create", values={**values, "slug": "b", "parent": other.pk}
    )
    assert "You may not" in call(client, "publish", pk=page.pk)
    assert not any(map(list, Page.find_problems()))


def test_publisher_publishes_the_latest_draft(section: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Recipe("wagtail", "TreeToolset", monkeypatch).client(add_editor(section, "add", "change", "publish"))
    key = call(client, "create", values={"title": "Tea", "slug": "tea", "parent": section.pk})["pk"]
    call(client, "publish", pk=key)
    call(client, "update", pk=key, values={"title": "Green tea"})
    page = Page.objects.get(pk=key)
    assert (page.live, page.title, page.has_unpublished_changes) == (True, "Tea", True)
    call(client, "publish", pk=key)
    assert Page.objects.get(pk=key).title == "Green tea"
    assert page.revisions.count() == 2
    call(client, "delete", pk=key)
    assert not Page.objects.filter(pk=key).exists()

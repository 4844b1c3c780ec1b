"""django-scopes: each caller works inside the scope of a tenant, and no query runs without one."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group, User
from django_scopes import scopes_disabled
from django_scopes.exceptions import ScopeError

from mcp_django.server.options import ServerOptions
from mcp_django.server.server import Server
from mcp_django.testing import TestClient
from tests.packages.restricted_models import Ticket
from tests.recipes.pages import Recipe, block_with
from tests.shop import models as shop_models

pytestmark = pytest.mark.django_db


def client(user: User, organizer: str, monkeypatch: pytest.MonkeyPatch, *, in_scope: bool = True) -> TestClient:
    """A client of the recipe at the address of an organizer."""
    monkeypatch.setattr(shop_models, "Ticket", Ticket, raising=False)
    scopes: dict[str, Any] = {}
    exec(block_with("scopes", "def enter_scope"), scopes)
    recipe = Recipe("scopes", "class Tickets", monkeypatch)
    around = (scopes["enter_scope"],) if in_scope else ()
    server = Server("docs", "1", registry=recipe.registry, options=ServerOptions(around=around))
    return TestClient(server, user=user, kwargs={"organizer": organizer})


@pytest.fixture
def sue() -> User:
    sue = User.objects.create_user("sue", is_superuser=True)
    with scopes_disabled():
        for name in ("opera", "circus"):
            Ticket.objects.create(organizer=Group.objects.create(name=name), name=f"To the {name}")
    Group.objects.get(name="opera").user_set.add(sue)
    return sue


def call(peer: TestClient, tool: str, **arguments: Any) -> Any:
    return async_to_sync(peer.call_tool)(tool, arguments)


def test_a_member_sees_and_adds_the_rows_of_the_organizer(sue: User, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = client(sue, "opera", monkeypatch)
    listed = call(peer, "ticket_list")["structuredContent"]["items"]
    assert [row["name"] for row in listed] == ["To the opera"]
    with scopes_disabled():
        foreign = Ticket.objects.get(name="To the circus")
    assert call(peer, "ticket_delete", pk=foreign.pk)["isError"]
    assert call(peer, "ticket_create", values={"name": "Gala"})["structuredContent"]["item"]["name"] == "Gala"
    with scopes_disabled():
        assert Ticket.objects.filter(organizer__name="opera").count() == 2
        assert Ticket.objects.filter(pk=foreign.pk).exists()


def test_others_and_calls_without_a_scope_are_refused(sue: User, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = call(client(sue, "circus", monkeypatch), "ticket_list")
    assert "Unknown organizer" in refused["content"][0]["text"]
    with pytest.raises(ScopeError):
        call(client(sue, "opera", monkeypatch, in_scope=False), "ticket_list")

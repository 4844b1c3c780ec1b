"""An API below an organizer, as ticket shops have it: a session in the permissions, and a scope by the path."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.urls import include, path
from django_scopes import get_scope
from rest_framework import permissions, serializers, viewsets
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from tests.repository.pages import ROOT, import_shop, python_blocks, served_by
from tests.server.client import PipelineClient, make_server


class EventPermission(permissions.BasePermission):
    """Permission that checks the age of the session, and the organizer of the path."""

    def has_permission(self, request: Any, view: Any) -> bool:
        request.session["last_used"] = 1
        return request.organizer is not None and not request.session.get("is_expired")


class EventSerializer(serializers.Serializer):
    name = serializers.CharField()

    def get_fields(self) -> Any:
        assert get_scope(), "a manager of django-scopes is closed without a scope"
        return super().get_fields()


class EventViewSet(viewsets.GenericViewSet):
    permission_classes = (EventPermission,)
    serializer_class = EventSerializer

    def list(self, request: Any, organizer: str) -> Response:
        return Response({"scope": get_scope()["organizer"].slug})

    def retrieve(self, request: Any, organizer: str, pk: str) -> Response:
        return Response(self.get_serializer({"name": pk}).data)


class Organizers:
    """Rows of organizers, found by their slug."""

    def filter(self, slug: str) -> Any:
        found = SimpleNamespace(slug=slug) if slug == "north" else None
        return SimpleNamespace(first=lambda: found)


organizer_router = SimpleRouter()
organizer_router.register("events", EventViewSet, basename="event")
urlpatterns = [path("organizers/<slug:organizer>/", include(organizer_router.urls))]
pytestmark = pytest.mark.urls(__name__)


async def test_views_find_their_session_and_run_inside_their_scope(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import_shop(monkeypatch)
    monkeypatch.setattr(sys.modules["shop.models"], "Organizer", SimpleNamespace(objects=Organizers()), raising=False)
    for name in ("shop.api", "shop.api.urls"):
        module = ModuleType(name)
        module.organizer_router = organizer_router  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    blocks = python_blocks(ROOT / "docs" / "expose" / "rest-routers.md")
    _, registry = served_by(next(block for block in blocks if "django_scopes" in block), monkeypatch)
    client = PipelineClient(make_server(registry=registry))

    assert await client.names() == ["event_list", "event_retrieve"]
    assert await client.text("event_list", organizer="north") == '{"scope":"north"}'
    assert await client.text("event_retrieve", organizer="north", pk="gala") == '{"name":"gala"}'
    assert "credentials" in await client.error("event_list", organizer="south")
    assert not [record for record in caplog.records if record.name == "mcp_django.rest"]

"""A view that cannot be described takes no other tool away."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.checks import CheckMessage
from rest_framework import viewsets
from rest_framework.routers import SimpleRouter

from mcp_django.checks import declarations
from mcp_django.contrib.rest import expose
from mcp_django.contrib.rest import tools as rest_tools
from mcp_django.contrib.rest.plan_builder import PlanBuilder
from mcp_django.server.primitives import registry
from tests.library.views import BookViewSet
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


@pytest.fixture(autouse=True)
def _registries_of_this_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "REGISTRIES", {})
    monkeypatch.setattr(registry, "MARKED_METHODS", registry.MarkedMethods())
    before = {*rest_tools.EXPOSED_ACTIONS}
    yield
    for exposed in {*rest_tools.EXPOSED_ACTIONS} - before:  # the checks of other tests must not see them
        rest_tools.EXPOSED_ACTIONS.discard(exposed)


class BrokenViewSet(BookViewSet):
    """A view whose plan cannot be built."""


@pytest.fixture(autouse=True)
def _broken_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    build = PlanBuilder.build

    def build_or_fail(self: PlanBuilder) -> Any:
        if self.action.subject.cls is BrokenViewSet:
            raise ImportError("no module named 'elsewhere'")
        return build(self)

    monkeypatch.setattr(PlanBuilder, "build", build_or_fail)


class UnroutedViewSet(viewsets.ViewSet):
    def list(self, request: Any) -> Any: ...


router = SimpleRouter()
router.register("books", BookViewSet)
router.register("broken", BrokenViewSet, basename="broken")
urlpatterns = router.urls


def check() -> list[CheckMessage]:
    views = [one for one in rest_tools.check_exposed_views(None) if __name__.rpartition(".")[2] in one.msg]
    return [*declarations.check_declarations(), *views]


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_view_that_fails_or_has_no_route_is_left_out_and_logged_once(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    expose(BookViewSet)
    expose(BrokenViewSet, prefix="broken_", actions=["create", "list"])
    expose(UnroutedViewSet, route="nowhere")
    client = PipelineClient(make_server(registry=registry.get_registry("default")), version=version)
    for _ in range(2):
        assert await client.names() == ["book_list", "book_retrieve"]
    texts = sorted(record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert [("BrokenViewSet" in text, "Unrouted" in text) for text in texts] == [
        (False, True),
        (True, False),
        (True, False),
    ]
    assert "ImportError: no module named 'elsewhere'" in texts[1]


def test_a_view_that_fails_is_e004_and_a_missing_route_is_e020_only() -> None:
    expose(BrokenViewSet, prefix="broken_", actions=["create"])
    expose(UnroutedViewSet, route="nowhere")
    found = {(message.id, "Broken" in message.msg, "Unrouted" in message.msg): message for message in check()}
    assert {*found} == {("mcp_django.E004", True, False), ("mcp_django.E020", False, True)}
    assert "ImportError" in found["mcp_django.E004", True, False].msg

"""All that drf-spectacular documents, as tools, called in process."""

import functools
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction
from django.urls import include, path
from drf_spectacular.openapi import AutoSchema
from rest_framework import permissions, serializers, viewsets
from rest_framework.authentication import TokenAuthentication
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from mcp_django.contrib.openapi import Route
from mcp_django.contrib.rest import from_spectacular
from mcp_django.contrib.rest.access.authentication import Delegation
from tests.contrib.rest.library_api import principal
from tests.server.client import PipelineClient, make_server

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("_urls")]


class UserSerializer(serializers.ModelSerializer[User]):
    class Meta:
        model = User
        fields = ("id", "username", "email")


class UserViewSet(viewsets.ModelViewSet[User]):
    """People."""

    schema = AutoSchema()
    queryset = User.objects.order_by("pk")
    serializer_class = UserSerializer
    authentication_classes = (TokenAuthentication,)
    permission_classes = (permissions.IsAuthenticated,)

    def get_queryset(self) -> Any:
        return super().get_queryset().filter(pk=self.request.user.pk)

    @action(detail=False)
    def me(self, request: Request) -> Response:
        assert isinstance(request.auth, Delegation)
        return Response({"username": request.user.get_username(), "cookies": list(request.COOKIES)})


def barred(view: Any) -> Any:
    @functools.wraps(view)
    def inner(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("never reached by calls")

    return inner


router = SimpleRouter()
router.register("users", UserViewSet)
urlpatterns = [
    path("api/", include(router.urls)),
    path("barred/", barred(UserViewSet.as_view({"get": "list"}))),
]


@pytest.fixture
def _urls(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__


def peer(user: User | None, **options: Any) -> PipelineClient:
    return PipelineClient(make_server(toolsets=[from_spectacular(**options)]), principal(user))


async def test_every_operation_is_a_tool() -> None:
    assert await peer(None, prefix="shop", routes=[Route("GET *"), Route(expose=None)]).names() == [
        "shop_api_users_list",
        "shop_api_users_me_retrieve",
        "shop_api_users_retrieve",
        "shop_barred_list",
    ]


async def test_a_view_sees_the_principal_in_the_place_of_its_authenticators() -> None:
    ada = await User.objects.acreate_user("ada")
    bob = await User.objects.acreate_user("bob")
    result = await peer(ada).call("api_users_list")
    assert [row["username"] for row in result["structuredContent"]["result"]] == ["ada"]
    assert await peer(ada).text("api_users_me_retrieve") == '{"username":"ada","cookies":["mcp"]}'
    assert (await peer(ada).error("api_users_retrieve", id=bob.pk)).startswith("404")
    assert (await peer(None).error("api_users_list")).startswith("401")


async def test_written_data_is_validated_by_the_serializer() -> None:
    ada = await User.objects.acreate_user("ada")
    told = await peer(ada).error("api_users_create", username="grace", email="x")
    assert told == '400 Bad Request\n{"email":["Enter a valid email address."]}'
    result = await peer(ada).call("api_users_partial_update", id=ada.pk, email="ada@example.com")
    assert result["structuredContent"]["email"] == "ada@example.com"
    await ada.arefresh_from_db()
    assert ada.email == "ada@example.com"


async def test_a_view_that_is_decorated_on_its_route_is_not_called() -> None:
    ada = await User.objects.acreate_user("ada")
    assert "test_spectacular.barred" in await peer(ada).error("barred_list")
    assert (await peer(ada, decorated=True).call("barred_list"))["isError"] is False


@pytest.mark.django_db(transaction=True)
async def test_atomic_requests_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def get_queryset(self: Any) -> Any:
        seen.append(transaction.get_connection().in_atomic_block)
        return User.objects.all()

    monkeypatch.setattr(UserViewSet, "get_queryset", get_queryset)
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    ada = await User.objects.acreate_user("ada")
    await peer(ada).call("api_users_list")
    assert seen == [True]


async def test_a_document_may_be_given() -> None:
    ada = await User.objects.acreate_user("ada")
    document = {"openapi": "3.0.3", "paths": {"/users/me/": {"get": {"operationId": "me"}}}}
    assert "ada" in await peer(ada, document=document, root="/api").text("me")

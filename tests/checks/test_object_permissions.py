"""Checks of the meaning of permissions for rows, and of the base class of toolsets."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.checks import CheckMessage, run_checks
from django.test import override_settings

from mcp_django import ModelToolset, register
from mcp_django.orm import register_model
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives import registry

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests declare things for servers of their own."""
    monkeypatch.setattr(registry, "REGISTRIES", {"default": registry.Registry("default", strict=False)})
    monkeypatch.setattr(registry, "MARKED_METHODS", registry.MarkedMethods())


def messages() -> list[CheckMessage]:
    """The messages of the package, apart from those about the authorization server of the tests' site."""
    unused = {"mcp_django.W033", "mcp_django.W034"}
    return [one for one in run_checks() if str(one.id).startswith("mcp_django.") and one.id not in unused]


def ids() -> list[str]:
    return [str(message.id) for message in messages()]


OBJECT_BACKENDS = ["django.contrib.auth.backends.ModelBackend", "tests.orm.object_backends.ConstraintBackend"]


@override_settings(MCP={"AUTH": "token"}, AUTHENTICATION_BACKENDS=OBJECT_BACKENDS)
def test_object_permissions_without_a_stated_meaning_are_reported_with_the_choices() -> None:
    @register(User)
    class Users(ModelToolset):
        fields = ("username",)

    [message] = messages()
    assert message.id == "mcp_django.E070"
    for text in ("Users", "tests.orm.object_backends.ConstraintBackend"):
        assert text in message.msg
    for text in ('"all"', '"some"', "dotted path"):
        assert text in str(message.hint)


@override_settings(MCP={"AUTH": "token"}, AUTHENTICATION_BACKENDS=OBJECT_BACKENDS)
def test_toolsets_with_their_own_hooks_need_no_statement() -> None:
    @register(User)
    class Users(ModelToolset):
        fields = ("username",)

        def has_view_permission(self, ctx: Any, obj: Any = None) -> bool:
            return True

    assert ids() == []


def test_a_stated_meaning_has_no_message(subtests: pytest.Subtests) -> None:
    @register(User)
    class Users(ModelToolset):
        fields = ("username",)

    for stated in ("all", "some", "tests.orm.object_backends.filter_granted"):
        orm = {"OBJECT_PERMISSIONS": stated}
        with (
            subtests.test(stated=stated),
            override_settings(MCP={"AUTH": "token", "ORM": orm}, AUTHENTICATION_BACKENDS=OBJECT_BACKENDS),
        ):
            assert ids() == []


@override_settings(MCP={"AUTH": "token", "ORM": {"OBJECT_PERMISSIONS": "shop.rows", "TOOLSET": "shop.Toolset"}})
def test_paths_of_model_toolsets_are_imported() -> None:
    assert ids() == ["mcp_django.E007", "mcp_django.E007"]


class ProjectToolset(ModelToolset):
    """The base class of a project."""


def test_toolsets_outside_the_base_class_are_reported(subtests: pytest.Subtests) -> None:
    @register(User)
    class Users(ModelToolset):
        fields = ("username",)

    register_model(Group, fields=["name"])
    for path, expected in (
        (f"{__name__}.ProjectToolset", ["mcp_django.W070"] * 2),
        ("django.contrib.auth.models.User", ["mcp_django.E007"]),
    ):
        with subtests.test(path=path), override_settings(MCP={"AUTH": "token", "ORM": {"TOOLSET": path}}):
            assert ids() == expected


@override_settings(MCP={"AUTH": "token", "ORM": {"TOOLSET": f"{__name__}.ProjectToolset"}})
def test_a_model_registered_without_a_class_extends_the_base_class() -> None:
    assert issubclass(register_model(Group, fields=["name"]), ProjectToolset)
    with pytest.raises(DeclarationError, match="no option 'feilds'"):
        register_model(User, feilds=["username"])
    assert ids() == []


@override_settings(MCP={"AUTH": "token"})
def test_a_user_model_without_permissions_of_django_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    @register(User)
    class Users(ModelToolset):
        fields = ("username",)

    assert ids() == []
    monkeypatch.setattr(User, "is_superuser", property(lambda self: False, lambda self, value: None))
    [message] = messages()
    assert message.id == "mcp_django.W071"
    assert "has_view_permission" in str(message.hint)

"""Principals: their key, their scopes, and the permissions of their user."""

import dataclasses
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.utils.functional import SimpleLazyObject

from mcp_django import Principal
from mcp_django.auth.principal import PERMISSION_CACHE_SECONDS, DjangoPrincipal, local_principal, owner_of
from mcp_django.testing import TestClient
from tests.server.client import make_server
from tests.support.clock import Clock

VIEW, ADD = "auth.view_group", "auth.add_group"


def principal(user: Any = None, **facts: Any) -> DjangoPrincipal:
    """A principal of some token."""
    return DjangoPrincipal(issuer="django", subject="1", user=user, **facts)


@pytest.fixture
def user(db: None) -> User:
    """A user with the permission to view groups."""
    user = User.objects.create_user("alice")
    user.user_permissions.add(Permission.objects.get(codename="view_group"))
    return User.objects.get(pk=user.pk)


class TestKey:
    def test_the_key_joins_issuer_subject_and_client(self) -> None:
        assert DjangoPrincipal(issuer="https://as", subject="7", client_id="cli").key == "https://as|7|cli"

    def test_crafted_names_do_not_make_two_principals_equal(self) -> None:
        keys = {
            DjangoPrincipal(issuer=issuer, subject=subject, client_id=client).key
            for issuer, subject, client in [
                ("a", "b|c", "d"),
                ("a", "b", "c|d"),
                ("a|b", "c", "d"),
                ("a", "b%7Cc", "d"),
            ]
        }
        assert len(keys) == 4

    def test_no_other_principal_has_the_key_of_the_local_one(self) -> None:
        assert local_principal().key == "local"
        assert DjangoPrincipal(issuer="local", subject="", client_id="").key != "local"


class TestOwner:
    def test_the_owner_is_the_same_for_every_client(self) -> None:
        owners = {
            DjangoPrincipal(issuer="https://as", subject="7", client_id=client).owner for client in ("", "cli", "web")
        }
        assert owners == {"https://as|7"}

    def test_crafted_names_do_not_make_two_principals_equal(self) -> None:
        names = [("a", "b|c"), ("a|b", "c"), ("a", "b%7Cc"), ("a%7Cb", "c")]
        assert len({DjangoPrincipal(issuer=issuer, subject=subject).owner for issuer, subject in names}) == 4

    def test_the_local_principal_shares_the_owner_with_tokens_of_its_user(self) -> None:
        alice = User(pk=1, username="alice")
        assert local_principal(alice).owner == principal().owner == owner_of(alice) == "django|1"

    def test_a_principal_without_a_user_owns_nothing(self, subtests: pytest.Subtests) -> None:
        for user in (None, AnonymousUser(), User(username="unsaved")):
            with subtests.test(user=user):
                assert owner_of(user) is None
                assert local_principal(user).owner is None
                assert DjangoPrincipal(issuer="as", subject="", user=user).owner is None

    def test_the_owner_of_a_machine_is_its_subject(self) -> None:
        assert DjangoPrincipal(issuer="as", subject="robot").owner == "as|robot"


class TestLocal:
    def test_the_local_principal_has_every_right(self) -> None:
        local = local_principal()
        assert local.is_local
        assert local.has_scopes(["anything"])
        assert local.has_perm("any.thing")
        assert local.user is None

    async def test_the_local_principal_has_every_right_in_async_code(self) -> None:
        assert await local_principal(AnonymousUser()).aperm("any.thing")

    def test_the_local_principal_acts_as_its_user(self) -> None:
        user = User(username="alice")
        assert local_principal(user).user is user


class TestScopes:
    def test_all_scopes_are_required(self) -> None:
        who = principal(scopes=frozenset({"a", "b"}))
        assert who.has_scopes([])
        assert who.has_scopes(["b", "a"])
        assert not who.has_scopes(["a", "c"])

    def test_a_token_without_scopes_holds_none(self) -> None:
        assert not principal().has_scopes(["a"])


class TestPermissions:
    def test_the_users_permissions_decide(self, user: User) -> None:
        who = principal(user)
        assert who.has_perm(VIEW)
        assert not who.has_perm(ADD)

    async def test_async_code_gets_the_same_answers(self, user: User) -> None:
        who = principal(user)
        assert await who.aperm(VIEW)
        assert not await who.aperm(ADD)

    def test_a_principal_without_a_user_has_no_permission(self, db: None, subtests: pytest.Subtests) -> None:
        for anonymous_user in (None, AnonymousUser()):
            with subtests.test(anonymous_user=anonymous_user):
                assert not principal(anonymous_user).has_perm(VIEW)

    def test_an_inactive_user_has_none(self, user: User) -> None:
        user.is_active = False
        assert not principal(user).has_perm(VIEW)

    def test_an_answer_is_remembered(self, user: User, django_assert_num_queries: Any) -> None:
        who = principal(user)
        assert who.cached_perm(VIEW) is None
        assert who.has_perm(VIEW)
        with django_assert_num_queries(0):
            assert who.has_perm(VIEW)
            assert who.cached_perm(VIEW) is True

    def test_a_removed_permission_takes_effect_after_the_cache_expires(self, user: User, clock: Clock) -> None:
        """A principal may live as long as its socket."""
        who = principal(user)
        assert who.has_perm(VIEW)
        user.user_permissions.clear()
        assert who.has_perm(VIEW)
        clock.move(PERMISSION_CACHE_SECONDS + 1)
        assert who.cached_perm(VIEW) is None
        assert not who.has_perm(VIEW)
        assert who.cached_perm(VIEW) is False

    def test_a_deleted_user_has_no_permissions_after_the_cache_expires(self, user: User, clock: Clock) -> None:
        who = principal(SimpleLazyObject(lambda: user))
        assert who.has_perm(VIEW)
        User.objects.filter(pk=user.pk).delete()
        clock.move(PERMISSION_CACHE_SECONDS + 1)
        assert not who.has_perm(VIEW)


class TestValue:
    def test_a_principal_is_immutable(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            principal().scopes = frozenset({"more"})  # type: ignore[misc]

    def test_the_repr_has_the_key_and_no_secrets(self) -> None:
        who = principal(
            User(username="alice", password="hash"),
            scopes=frozenset({"b", "a"}),
            claims={"email": "x@y"},
            token_id="id7",
        )
        assert repr(who) == "<Principal django|1| (token), scopes: a b>"


async def test_the_public_principal_is_constructed_and_injected() -> None:
    server = make_server()

    @server.tool
    def whose(caller: Principal, other: DjangoPrincipal | None = None) -> str:
        return f"{caller.owner} {other is caller}"

    client = TestClient(server, principal=Principal(issuer="https://id.example", subject="7"))
    result = await client.call_tool("whose")
    assert result["content"][0]["text"] == "https://id.example|7 True"
    [listed] = await client.list_tools()
    assert listed["inputSchema"].get("properties", {}) == {}

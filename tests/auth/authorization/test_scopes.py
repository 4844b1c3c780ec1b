"""Filters of delegated scopes: hierarchies add implied ones, authorizers and grants remove some."""

import logging
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User

from mcp_django.auth.authorization.scopes import PrincipalRefused, ScopeFilter, ScopeHierarchy, allowed_scopes
from mcp_django.auth.principal import ALL_SCOPES, PROJECT_ISSUER, DjangoPrincipal, local_principal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.models import ScopeGrant


def make_principal(*scopes: str, **given: Any) -> DjangoPrincipal:
    return DjangoPrincipal(**{"issuer": "tests", "subject": "1", "scopes": frozenset(scopes), **given})


@pytest.fixture
def alice(db: None) -> User:
    """Is in the group of editors."""
    user = User.objects.create_user("alice")
    user.groups.add(Group.objects.create(name="editors"))
    return user


HIERARCHIES: list[tuple[Any, set[str], set[str]]] = [
    ({}, {"a"}, {"a"}),
    ({"write": ["read"]}, {"write"}, {"write", "read"}),
    ({"write": ["read"]}, {"read"}, {"read"}),
    ({"all": ["write"], "write": ["read", "list"]}, {"all"}, {"all", "write", "read", "list"}),
    ({"a": ["b"], "b": ["a"]}, {"a", "c"}, {"a", "b", "c"}),
    ({"a": ["a"]}, {"a"}, {"a"}),
]


class TestHierarchies:
    def test_a_scope_implies_all_included_scopes(self, subtests: pytest.Subtests) -> None:
        for implies, scopes, expected in HIERARCHIES:
            with subtests.test(implies=implies):
                assert ScopeHierarchy(implies).expand(frozenset(scopes)) == expected

    def test_a_principal_with_every_scope_keeps_it(self) -> None:
        assert ScopeHierarchy({"a": ["b"]}).expand(ALL_SCOPES) is ALL_SCOPES

    async def test_the_key_of_a_principal_does_not_depend_on_scopes(self) -> None:
        before = make_principal("write", client_id="c", kind="oauth")
        after = await ScopeFilter(hierarchy=ScopeHierarchy({"write": ["read"]})).filter_scopes(before)
        assert after.has_scopes(["read", "write"])
        assert (after.key, after.kind) == (before.key, before.kind)

    async def test_the_local_principal_is_unchanged(self) -> None:
        local = local_principal()
        assert await ScopeFilter(authorize=lambda principal, resource: None).filter_scopes(local) is local


WIDER: list[dict[str, Any]] = [
    {"scopes": frozenset({"read", "admin"})},
    {"scopes": ALL_SCOPES},
    {"subject": "2"},
    {"client_id": "other"},
    {"issuer": "else"},
    {"user": User(pk=7)},
    {"kind": "local"},
    {"expires_at": None},
    {"expires_at": 2e9},
    {"audience": "other"},
    {"token_id": 9},
]


class TestAuthorizers:
    async def test_an_authorizer_may_remove_scopes(self) -> None:
        def plain(principal: DjangoPrincipal, *, resource: Any) -> DjangoPrincipal:
            assert resource.server == "default"
            return replace(principal, scopes=principal.scopes - {"write"})

        async def asynchronous(principal: DjangoPrincipal, *, resource: Any) -> DjangoPrincipal:
            return plain(principal, resource=resource)

        for authorize in (plain, asynchronous):
            narrowing = ScopeFilter(authorize=authorize)
            found = await narrowing.filter_scopes(
                make_principal("read", "write"), resource=ProtectedResource(server="default")
            )
            assert found.scopes == {"read"}, authorize

    async def test_an_authorizer_gets_the_implied_scopes(self) -> None:
        seen = []

        def look(principal: DjangoPrincipal, *, resource: Any) -> DjangoPrincipal:
            seen.append(principal.scopes)
            return principal

        await ScopeFilter(hierarchy=ScopeHierarchy({"write": ["read"]}), authorize=look).filter_scopes(
            make_principal("write")
        )
        assert seen == [{"read", "write"}]

    async def test_an_authorizer_may_refuse(self) -> None:
        with pytest.raises(PrincipalRefused):
            await ScopeFilter(authorize=lambda principal, resource: None).filter_scopes(make_principal("a"))

    async def test_an_authorizer_cannot_add_rights(self, caplog: Any) -> None:
        violations = []
        for changes in WIDER:
            caplog.clear()
            narrowing = ScopeFilter(
                authorize=lambda principal, resource, changes=changes: replace(principal, **changes)
            )
            with caplog.at_level(logging.ERROR, "mcp_django.auth"):
                try:
                    found = await narrowing.filter_scopes(make_principal("read", expires_at=1e9))
                except PrincipalRefused:
                    if "may only remove scopes" not in caplog.text:
                        violations.append((changes, "not logged"))
                else:
                    violations.append((changes, found))
        assert violations == []

    async def test_a_return_value_that_is_not_a_principal_is_refused(self) -> None:
        for answer in (True, "principal", object()):
            with pytest.raises(PrincipalRefused):
                await ScopeFilter(authorize=lambda principal, resource, answer=answer: answer).filter_scopes(
                    make_principal("a")
                )

    async def test_an_authorizer_that_fails_refuses(self, caplog: Any) -> None:
        def fails(principal: DjangoPrincipal, *, resource: Any) -> DjangoPrincipal:
            raise KeyError("a bug")

        with caplog.at_level(logging.ERROR, "mcp_django.auth"), pytest.raises(PrincipalRefused):
            await ScopeFilter(authorize=fails).filter_scopes(make_principal("a"))
        assert "a bug" in caplog.text


@pytest.mark.django_db
class TestGrants:
    async def filter_by_grants(self, principal: DjangoPrincipal, *required: str) -> frozenset[str]:
        resource = ProtectedResource(server="default", scopes=required)
        return (await ScopeFilter().filter_scopes(principal, resource=resource)).scopes

    async def test_a_scope_without_a_grant_is_kept_as_delegated(self) -> None:
        assert await self.filter_by_grants(make_principal("a", "b")) == {"a", "b"}

    async def test_only_users_in_a_group_of_the_grant_have_the_scope(self, alice: User) -> None:
        await ScopeGrant.objects.acreate(scope="a", groups=["editors", "else"])
        await ScopeGrant.objects.acreate(scope="b", groups=["else"])
        assert await self.filter_by_grants(make_principal("a", "b", "c", user=alice)) == {"a", "c"}
        assert await self.filter_by_grants(make_principal("a", "b", "c", user=AnonymousUser())) == {"c"}
        assert await self.filter_by_grants(make_principal("a", "b", "c")) == {"c"}

    async def test_users_of_the_grant_have_the_scope_in_addition_to_its_groups(self, alice: User) -> None:
        bob = await User.objects.acreate(username="bob")
        await ScopeGrant.objects.acreate(scope="a", users=[str(bob.pk)])
        await ScopeGrant.objects.acreate(scope="b", users=[str(bob.pk)], groups=["editors"])
        assert await self.filter_by_grants(make_principal("a", "b", user=bob)) == {"a", "b"}
        assert await self.filter_by_grants(make_principal("a", "b", user=alice)) == {"b"}
        assert await self.filter_by_grants(make_principal("a", "b")) == frozenset()
        bob.is_active = False
        assert await self.filter_by_grants(make_principal("a", "b", user=bob)) == frozenset()

    async def test_superusers_are_no_exception(self) -> None:
        boss = await User.objects.acreate(username="boss", is_superuser=True)
        await ScopeGrant.objects.acreate(scope="a", groups=["editors"])
        assert await self.filter_by_grants(make_principal("a", user=boss)) == frozenset()

    async def test_only_clients_of_the_grant_have_the_scope(self) -> None:
        await ScopeGrant.objects.acreate(scope="a", clients=["https://good.example/*", "one"])
        for client, expected in (("https://good.example/x", True), ("one", True), ("One", False), ("", False)):
            assert ("a" in await self.filter_by_grants(make_principal("a", client_id=client))) is expected

    async def test_personal_access_tokens_have_a_separate_option(self) -> None:
        await ScopeGrant.objects.acreate(scope="a", clients=["one"], tokens=True)
        await ScopeGrant.objects.acreate(scope="b", tokens=False)
        personal = make_principal("a", "b", issuer=PROJECT_ISSUER, client_id="token:5")
        assert await self.filter_by_grants(personal) == {"a"}
        assert await self.filter_by_grants(make_principal("a", "b", client_id="token:5")) == {"b"}

    async def test_a_caller_that_can_never_get_a_required_scope_is_refused_without_a_step_up(self) -> None:
        await ScopeGrant.objects.acreate(scope="base", groups=["editors"])
        with pytest.raises(PrincipalRefused):
            await self.filter_by_grants(make_principal("base"), "base")
        with pytest.raises(PrincipalRefused):
            await self.filter_by_grants(make_principal(), "base")

    def test_consent_offers_the_scopes_that_user_and_client_may_have(self, alice: User, settings: Any) -> None:
        settings.MCP = {**settings.MCP, "SCOPES": {name: name.title() for name in "abcd"}}
        ScopeGrant.objects.create(scope="a", groups=["editors"])
        ScopeGrant.objects.create(scope="b", groups=["else"])
        ScopeGrant.objects.create(scope="c", clients=["one"])
        assert allowed_scopes(alice, "one") == {"a", "c", "d"}
        assert allowed_scopes(alice, "two") == {"a", "d"}
        assert allowed_scopes(alice) == {"a", "c", "d"}
        assert allowed_scopes(alice, "one", scopes=["b", "c", "x"]) == {"c", "x"}
        assert allowed_scopes(AnonymousUser(), "two") == {"d"}
        ScopeGrant.objects.filter(scope="b").update(users=[str(alice.pk)])
        assert allowed_scopes(alice, "two") == {"a", "b", "d"}

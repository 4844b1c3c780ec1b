"""Groups, and permissions on single objects."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User

from mcp_django.auth.authorization.policy import Policy
from mcp_django.auth.permissions import in_group
from mcp_django.auth.principal import DjangoPrincipal, invalidate_permissions, local_principal
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.ports import ALLOW, HIDDEN
from tests.auth.authorization.test_policy import Thing

pytestmark = pytest.mark.django_db


class ByName:
    """A backend with an object permission on groups that is named by the user."""

    def authenticate(self, request: Any, **credentials: Any) -> None:
        return None

    def has_perm(self, user: Any, permission: str, obj: Any = None) -> bool:
        return obj is not None and permission == "auth.change_group" and obj.name == user.username


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice")


def who(user: User) -> DjangoPrincipal:
    return DjangoPrincipal(issuer="tests", subject=str(user.pk), user=User.objects.get(pk=user.pk))


async def decided(principal: DjangoPrincipal, *groups: str) -> Any:
    return await Policy(LeasingExecutor()).decide(principal, Thing(permission=in_group(*groups)))


class TestGroups:
    async def test_a_member_of_one_of_the_groups_is_permitted(self, alice: User) -> None:
        group = await Group.objects.acreate(name="editors")
        assert await decided(DjangoPrincipal(issuer="tests", subject="1", user=alice), "editors", "else") == HIDDEN
        await alice.groups.aadd(group)
        assert await decided(DjangoPrincipal(issuer="tests", subject="1", user=alice), "editors", "else") == ALLOW
        assert await decided(DjangoPrincipal(issuer="tests", subject="1", user=alice), "else") == HIDDEN

    async def test_a_principal_without_a_user_is_in_no_group_and_the_local_one_in_all(self) -> None:
        assert await decided(DjangoPrincipal(issuer="tests", subject="1"), "editors") == HIDDEN
        assert await decided(local_principal(), "editors") == ALLOW

    def test_superusers_are_in_a_group_only_if_they_are(self) -> None:
        assert not who(User.objects.create_superuser("boss")).in_group("editors")

    def test_an_inactive_user_is_in_no_group(self, alice: User) -> None:
        alice.groups.add(Group.objects.create(name="editors"))
        User.objects.filter(pk=alice.pk).update(is_active=False)
        assert not who(alice).in_group("editors")

    def test_groups_are_cached_for_a_while(self, alice: User, django_assert_num_queries: Any) -> None:
        principal = who(alice)
        with django_assert_num_queries(1):
            assert not principal.in_group("editors")
            assert not principal.in_group("else")
        alice.groups.add(Group.objects.create(name="editors"))
        invalidate_permissions()
        assert principal.in_group("editors")

    def test_an_invalid_group_name_is_refused_at_declaration(self, subtests: pytest.Subtests) -> None:
        for names in ((), ("",), (None,), (["editors"],)):
            with subtests.test(names=names), pytest.raises(TypeError, match="in_group"):
                in_group(*names)


class TestObjects:
    @pytest.fixture(autouse=True)
    def _backends(self, settings: Any) -> None:
        settings.AUTHENTICATION_BACKENDS = [
            "django.contrib.auth.backends.ModelBackend",
            "tests.auth.test_permissions.ByName",
        ]

    def test_any_backend_may_check_object_permissions(self, alice: User) -> None:
        principal = who(alice)
        assert principal.has_perm("auth.change_group", Group(name="alice"))
        assert not principal.has_perm("auth.change_group", Group(name="bob"))
        assert not principal.has_perm("auth.change_group")

    def test_a_model_permission_does_not_imply_an_object_permission(self, alice: User) -> None:
        alice.user_permissions.add(Permission.objects.get(codename="change_group"))
        principal = who(alice)
        assert principal.has_perm("auth.change_group")
        assert not principal.has_perm("auth.change_group", Group(name="bob"))

    async def test_async_code_checks_object_permissions(self, alice: User) -> None:
        principal = DjangoPrincipal(issuer="tests", subject="1", user=alice)
        assert await principal.aperm("auth.change_group", Group(name="alice"))
        assert not await principal.aperm("auth.change_group", Group(name="bob"))

    async def test_a_principal_without_a_user_has_no_permission_and_the_local_one_all(self) -> None:
        assert not await DjangoPrincipal(issuer="tests", subject="1").aperm("auth.change_group", Group(name="x"))
        assert await local_principal().aperm("auth.change_group", Group(name="x"))

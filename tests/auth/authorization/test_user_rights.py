"""The rule that limits operators with the credentials of another user."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User

from mcp_django.auth.authorization.user_rights import has_no_more_rights
from mcp_django.models import ScopeGrant

pytestmark = pytest.mark.django_db


def create(name: str, *codenames: str, groups: tuple[str, ...] = (), **fields: Any) -> User:
    user = User.objects.create_user(name, **fields)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return user


def test_permissions_groups_and_superusers_are_compared() -> None:
    operator = create("operator", "view_user", "change_user", groups=("Planners",))
    root = create("root", is_superuser=True)
    assert has_no_more_rights(create("equal", "view_user", groups=("Planners",)), operator)
    assert not has_no_more_rights(create("strong", "delete_user"), operator)
    assert not has_no_more_rights(create("grouped", groups=("Buyers",)), operator)
    assert not has_no_more_rights(root, operator)
    assert has_no_more_rights(root, create("other root", is_superuser=True))


def test_an_inactive_user_counts_as_an_active_one() -> None:
    """Otherwise an operator could enable an account with any rights."""
    operator = create("operator")
    assert not has_no_more_rights(create("a", "delete_user", is_active=False), operator)
    assert not has_no_more_rights(create("b", groups=("Buyers",), is_active=False), operator)
    assert not has_no_more_rights(create("c", is_superuser=True, is_active=False), operator)


def test_a_scope_that_is_reserved_for_the_user_is_a_right() -> None:
    operator, robot = create("operator"), create("robot")
    grant = ScopeGrant.objects.create(scope="bank:transfer", users=[str(robot.pk)])
    assert not has_no_more_rights(robot, operator)
    grant.users = [str(robot.pk), str(operator.pk)]
    grant.save()
    assert has_no_more_rights(robot, operator)

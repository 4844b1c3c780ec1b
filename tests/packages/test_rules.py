"""django-rules: predicates decide about rows, in SQL where they have a condition."""

from collections.abc import Iterator
from typing import Any

import pytest
import rules
from django.contrib.auth.models import User
from django.db.models import Q

from mcp_django import ModelToolset
from mcp_django.orm.row_filters import filter_by_rules, row_condition
from tests.orm.object_backends import MODEL_BACKEND, object_permissions
from tests.orm.writing import as_user, get_error, get_result
from tests.recipes.pages import block_with, settings_with
from tests.shop.models import Order

pytestmark = pytest.mark.django_db
RULES = "rules.permissions.ObjectPermissionBackend"
FILTER = "mcp_django.orm.row_filters.filter_by_rules"


@row_condition(lambda user: Q(owner=user))
@rules.predicate
def is_owner(user: Any, order: Any) -> bool:
    return order is None or order.owner_id == user.pk


@row_condition(lambda user: Q(reference__startswith="X"))
@rules.predicate
def is_secret(user: Any, order: Any) -> bool:
    return order is not None and order.reference.startswith("X")


@rules.predicate
def is_short(user: Any, order: Any) -> bool:
    return order is not None and len(order.reference) == 2


@rules.predicate
def abstains(user: Any) -> None:
    return None


class Orders(ModelToolset):
    model = Order
    fields = ("reference", "note")
    tools = ("list", "get", "count", "update", "delete")


@pytest.fixture
def sue() -> User:
    sue, bob = User.objects.create_user("sue"), User.objects.create_user("bob", is_staff=True)
    for owner, reference in ((sue, "A1"), (sue, "X2"), (bob, "B1"), (bob, "X33")):
        Order.objects.create(owner=owner, reference=reference)
    return sue


@pytest.fixture(autouse=True)
def permissions() -> Iterator[None]:
    with object_permissions(FILTER, RULES, MODEL_BACKEND):
        rules.add_perm("shop.view_order", is_owner & ~is_secret)
        rules.add_perm("shop.change_order", is_owner)
        yield
        for name in list(rules.permissions.permissions):
            rules.remove_perm(name)


def test_rows_are_those_for_which_the_predicate_holds(sue: User) -> None:
    peer = as_user(sue, Orders)
    assert [row["reference"] for row in get_result(peer, "order_list")["items"]] == ["A1"]
    foreign = Order.objects.get(reference="B1")
    assert "no order" in get_error(peer, "order_get", pk=str(foreign.pk))
    own = Order.objects.get(reference="A1")
    assert get_result(peer, "order_update", pk=str(own.pk), values={"note": "Hi"})["item"]["note"] == "Hi"
    assert "nothing was changed" not in get_result(peer, "order_update", pk=str(own.pk), values={"note": "Ho"})


def test_conditions_select_the_rows_that_the_predicates_accept(sue: User, subtests: pytest.Subtests) -> None:
    bob = User.objects.get(username="bob")
    predicates = (
        is_owner,
        ~is_owner,
        is_owner | is_secret,
        is_owner ^ is_secret,
        ~(is_owner & is_secret),
        is_owner & rules.is_staff,
        is_owner | rules.is_staff,
        is_owner ^ rules.is_staff,
        ~rules.is_staff & is_secret,
        rules.always_allow,
        ~rules.always_allow,
        abstains,
        ~abstains,
        abstains & is_owner,
        is_owner | abstains,
        is_short & is_owner,
        ~is_short | is_secret,
    )
    for predicate in predicates:
        rules.set_perm("shop.view_order", predicate)
        for who in (sue, bob):
            with subtests.test(predicate=str(predicate), user=who.username):
                expected = {order for order in Order.objects.all() if who.has_perm("shop.view_order", order)}
                assert set(filter_by_rules(who, "shop.view_order", Order.objects.all())) == expected


def test_conditions_take_one_statement(sue: User, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        list(filter_by_rules(sue, "shop.view_order", Order.objects.all()))


def test_a_permission_without_a_rule_has_no_rows(sue: User) -> None:
    assert not filter_by_rules(sue, "shop.delete_order", Order.objects.all()).exists()


def test_the_code_of_the_recipe_runs(sue: User) -> None:
    assert settings_with("rules", "filter_by_rules")["ORM"]["OBJECT_PERMISSIONS"] == FILTER
    for name in list(rules.permissions.permissions):
        rules.remove_perm(name)
    exec(block_with("rules", "def is_owner"), {})
    assert get_result(as_user(sue, Orders), "order_count")["count"] == 2
    assert get_result(as_user(User.objects.get(username="bob"), Orders), "order_count")["count"] == 4

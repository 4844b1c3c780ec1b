"""NetBox's object permissions: constraints on the values of rows, also of new ones."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User

from mcp_django import ModelToolset
from tests.orm.object_backends import grant, object_permissions
from tests.orm.writing import as_user, get_error, get_result
from tests.packages.restricted_models import Site
from tests.recipes.pages import settings_with
from tests.shop.models import Product

pytestmark = pytest.mark.django_db
BACKENDS = [f"tests.packages.netbox_backend.{name}" for name in ("RemoteUserBackend", "ObjectPermissionBackend")]
FILTER = "mcp_django.orm.row_filters.filter_by_restrict"


class Sites(ModelToolset):
    model = Site
    fields = ("name", "region")
    tools = ("list", "get", "count", "aggregate", "create", "update", "delete")


@pytest.fixture
def north() -> Iterator[User]:
    for name, region in (("Oslo", "north"), ("Rome", "south"), ("Nice", "south")):
        Site.objects.create(name=name, region=region)
    with object_permissions(FILTER, *BACKENDS):
        for verb in ("view", "add", "change"):
            grant("north", f"packages.{verb}_site", region="north")
        yield User.objects.create_user("north")


def test_a_user_sees_and_changes_the_permitted_rows(north: User) -> None:
    peer = as_user(north, Sites)
    assert [row["name"] for row in get_result(peer, "site_list", with_total=True)["items"]] == ["Oslo"]
    assert get_result(peer, "site_aggregate")["groups"] == [{"count": 1}]
    foreign = Site.objects.get(name="Rome")
    for dry_run in (True, False):
        text = get_error(peer, "site_update", pk=foreign.pk, values={"name": "Mine"}, dry_run=dry_run)
        assert "no site" in text
    assert Site.objects.filter(name="Rome").exists()


def test_new_rows_and_new_values_conform_to_the_constraints(north: User) -> None:
    peer = as_user(north, Sites)
    assert get_result(peer, "site_create", values={"name": "Bergen", "region": "north"})["item"]["name"] == "Bergen"
    assert "nothing was changed" in get_error(peer, "site_create", values={"name": "Bari", "region": "south"})
    oslo = Site.objects.get(name="Oslo")
    assert "nothing was changed" in get_error(peer, "site_update", pk=oslo.pk, values={"region": "south"})
    assert sorted(Site.objects.values_list("region", flat=True)) == ["north", "north", "south", "south"]


def test_a_user_without_permissions_sees_nothing_and_a_superuser_everything(north: User) -> None:
    with pytest.raises(Exception, match="Unknown tool"):
        get_result(as_user(User.objects.create_user("stranger"), Sites), "site_count")
    root = User.objects.create_user("root", is_superuser=True)
    assert get_result(as_user(root, Sites), "site_count")["count"] == 3


def test_a_deletion_changes_no_row_without_the_permission(north: User) -> None:
    grant("north", "packages.delete_site", region="north")
    oslo, bergen = Site.objects.get(name="Oslo"), Site.objects.create(name="Bergen", region="north")
    Site.objects.filter(name="Rome").update(partner=oslo)
    Site.objects.filter(name="Nice").update(partner=bergen, region="north")
    peer = as_user(north, Sites)
    text = get_error(peer, "site_delete", pk=oslo.pk)
    assert text.endswith("because rows refer to it that you may not change")
    assert Site.objects.get(name="Rome").partner_id == oslo.pk
    assert get_result(peer, "site_delete", pk=bergen.pk)["changed"] == {"sites": 1}


def test_a_model_whose_manager_has_no_restrict_is_refused(north: User) -> None:
    class Products(ModelToolset):
        model = Product
        fields = ("name",)

    grant("north", "shop.view_product")
    with pytest.raises(Exception, match="Internal error"):
        get_result(as_user(north, Products), "product_count")


def test_the_setting_of_the_recipe_names_the_filter() -> None:
    assert settings_with("netbox", "filter_by_restrict")["ORM"]["OBJECT_PERMISSIONS"] == FILTER

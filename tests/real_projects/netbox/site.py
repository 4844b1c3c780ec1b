"""Rows and users of NetBox, whose own querysets select the visible rows of a user: `restrict(user, "view")`."""

from importlib import import_module
from typing import Any

from asgiref.sync import async_to_sync
from core.models import ObjectChange
from dcim.models import Region
from dcim.models import Site as NetBoxSite
from django.contrib.contenttypes.models import ContentType
from django.db import models
from users.models import ObjectPermission, User

from mcp_django.contrib.rest import expose_router
from mcp_django.testing import TestClient
from tests.real_projects.population import add_rows, list_kinds
from tests.real_projects.site import Site, ViewList

API_APPS = (*("circuits", "core", "dcim", "extras", "ipam", "tenancy", "users", "virtualization", "vpn", "wireless"),)
UNRELATED_APPS = ("social_django", "django_rq", "thumbnail", "sessions", "taggit")


def build_site() -> Site:
    """Return the site, with its rows."""
    kinds = list_kinds(UNRELATED_APPS)
    add_sites()
    errors = add_rows([kind for kind in kinds if kind not in (Region, NetBoxSite)])
    return Site(
        kinds=kinds,
        users=add_users(kinds),
        get_visible_rows=get_visible_rows,
        errors=errors,
        expose_views=expose_views,
        check_writes=check_change_log,
    )


def add_sites() -> None:
    """Add sites in two regions."""
    for name in ("North", "South"):
        region = Region.objects.create(name=name, slug=name.lower())
        for number in range(10):
            NetBoxSite.objects.create(name=f"{name} {number}", slug=f"{name.lower()}-{number}", region=region)


def add_users(kinds: list[type[models.Model]]) -> dict[str, Any]:
    """Add a superuser, a user who is limited by constraints, a reader of every other model, and one without rights."""
    names = ("root", "north", "reader", "stranger")
    users = {name: User.objects.create(username=name, is_superuser=name == "root") for name in names}
    actions = ["view", "add", "change", "delete"]
    grant(users["north"], [NetBoxSite], actions, {"region__slug": "north"})
    odd_keys = [kind for kind in kinds if kind is not NetBoxSite]
    for number, kind in enumerate(odd_keys):
        keys = list(kind._base_manager.values_list("pk", flat=True)[::2])
        if number % 3 == 0:
            grant(users["north"], [kind], actions, {"pk__in": [str(key) for key in keys]})
        if number % 2 == 0:
            grant(users["reader"], [kind], ["view"], None)
    return {name: User.objects.get(pk=user.pk) for name, user in users.items()}


def grant(user: Any, kinds: list[type[models.Model]], actions: list[str], constraints: Any) -> None:
    """Give a user actions on the rows of models that fulfil the constraints."""
    permission = ObjectPermission.objects.create(name=f"{user}", actions=actions, constraints=constraints)
    permission.object_types.set([ContentType.objects.get_for_model(kind) for kind in kinds])
    permission.users.add(user)


def expose_views() -> list[ViewList]:
    """Expose the routers of all apps, one line each, and return their lists."""
    lists = []
    for label in API_APPS:
        router = import_module(f"{label}.api.urls").router
        expose_router(router, server="views", read_only=False, prefix=f"{label}_")
        lists += [
            ViewList(tool=f"{label}_{basename}_list", path=f"/api/{label}/{route}/")
            for route, _, basename in router.registry
        ]
    return lists


def check_change_log(site: Site) -> list[str]:
    """Change a site by a tool of its model and by one of its view, and look for the user in NetBox's change log."""
    problems = []
    user = site.users["north"]
    row = NetBoxSite.objects.filter(region__slug="north").first()
    assert row is not None
    calls = [
        ("default", "dcim_site_update", {"pk": row.pk, "values": {"description": "by a tool"}}),
        ("views", "dcim_site_partial_update", {"pk": row.pk, "description": "by a view"}),
    ]
    for server, tool, arguments in calls:
        before = ObjectChange.objects.count()
        answer = async_to_sync(TestClient(server, user=user).call_tool)(tool, arguments)
        entries = ObjectChange.objects.order_by("-pk")[: ObjectChange.objects.count() - before]
        if answer.get("isError") or [entry.user_name for entry in entries] != [user.username]:
            problems.append(
                f"{tool}: {answer['content'][0]['text'][:200]}; change log: {[str(e.user) for e in entries]}"
            )
    hidden = NetBoxSite.objects.filter(region__slug="south").first()
    assert hidden is not None
    for values in ({"description": "x"}, {"region": hidden.region_id}):
        key = hidden.pk if "description" in values else row.pk
        answer = async_to_sync(TestClient(user=user).call_tool)("dcim_site_update", {"pk": key, "values": values})
        if not answer.get("isError"):
            problems.append(f"dcim_site_update of {key} with {values}: accepted, but NetBox forbids it")
    return problems


def get_visible_rows(user: Any, kind: type[models.Model]) -> "models.QuerySet[Any]":
    """Return the rows that NetBox shows the user; a model without its querysets is governed by the permission alone."""
    rows: Any = kind._default_manager.all()
    if hasattr(rows, "restrict"):
        return rows.restrict(user, "view")  # type: ignore[no-any-return]
    if user.is_superuser:
        return rows  # type: ignore[no-any-return]
    return rows.filter(
        pk__in=[row.pk for row in rows if user.has_perm(f"{kind._meta.app_label}.view_{kind._meta.model_name}", row)]
    )  # type: ignore[no-any-return]

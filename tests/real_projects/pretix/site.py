"""Rows and users of two organizers of pretix, whose managers show the rows of the active scope only."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.db import models
from django.utils.timezone import now
from django_scopes import scope, scopes_disabled
from django_scopes.exceptions import ScopeError
from pretix.api import urls
from pretix.base.models import Event, Order, Organizer, Team, User

from mcp_django.contrib.rest import expose_router
from tests.real_projects.population import list_kinds
from tests.real_projects.pretix.scopes import TenantToolset, enter_organizer, list_organizers
from tests.real_projects.site import Site, ViewList


def build_site() -> Site:
    """Return the site, with its rows."""
    kinds = [kind for kind in list_kinds() if needs_scope(kind)]
    with scopes_disabled():
        users = add_tenants()
    return Site(
        kinds=kinds,
        users=users,
        get_visible_rows=get_visible_rows,
        base=TenantToolset,
        expose_views=expose_views,
    )


def expose_views() -> list[ViewList]:
    """Expose the routers of pretix's API, one line each, and return the lists of its organizers and events."""
    routers = (
        *(
            ("", urls.router),
            ("organizer_", urls.orga_router),
            ("team_", urls.team_router),
            ("event_", urls.event_router),
        ),
        *(("subevent_", urls.subevent_router), ("list_", urls.checkinlist_router), ("question_", urls.question_router)),
        *(("item_", urls.item_router), ("order_", urls.order_router), ("giftcard_", urls.giftcard_router)),
    )
    for prefix, router in routers:
        expose_router(router, server="views", prefix=prefix, prepare=enter_organizer, decorated=True)
    lists = [ViewList(tool="organizer_list", path="/api/v1/organizers/")]
    for name in ("anna", "ben"):
        organizer, event = {"organizer": name}, {"organizer": name, "event": "event0"}
        path = f"/api/v1/organizers/{name}/"
        lists += [
            ViewList(tool=f"organizer_{basename}_list", path=f"{path}{route}/", arguments=organizer)
            for route, _, basename in urls.orga_router.registry
        ]
        lists += [
            ViewList(tool=f"event_{basename}_list", path=f"{path}events/event0/{route}/", arguments=event)
            for route, _, basename in urls.event_router.registry
        ]
    return lists


def needs_scope(kind: type[models.Model]) -> bool:
    """Return True if the manager of a model refuses queries outside of a scope."""
    try:
        kind._default_manager.all()
    except ScopeError:
        return True
    return False


def add_tenants() -> dict[str, Any]:
    """Add two organizers with events, items and orders, a member of each, and a user of none."""
    users = {
        name: User.objects.create_user(f"{name}@example.com", "password", is_staff=name == "root")
        for name in ("root", "anna", "ben", "stranger")
    }
    for name in ("anna", "ben"):
        organizer = Organizer.objects.create(name=f"Events of {name}", slug=name)
        team = Team.objects.create(
            organizer=organizer,
            name="Team",
            all_events=True,
            all_organizer_permissions=True,
            all_event_permissions=True,
        )
        team.members.add(users[name])
        for number in range(2):
            add_event(organizer, number)
    return users


def add_event(organizer: Any, number: int) -> None:
    """Add an event with items, quotas and orders."""
    event = Event.objects.create(
        organizer=organizer, name=f"Event {number}", slug=f"event{number}", date_from=now() + timedelta(days=number + 1)
    )
    category = event.categories.create(name="Tickets")
    items = [
        event.items.create(name=f"Ticket {place}", default_price=Decimal(place), category=category)
        for place in range(5)
    ]
    quota = event.quotas.create(name="Quota", size=50)
    quota.items.add(*items)
    for place in range(6):
        order = Order.objects.create(
            event=event,
            code=f"C{number}{place}",
            email="guest@example.com",
            status="n",
            datetime=now(),
            expires=now() + timedelta(days=10),
            total=Decimal(place),
            sales_channel=organizer.sales_channels.get(identifier="web"),
        )
        order.positions.create(item=items[place % 5], price=Decimal(place), positionid=1)


def get_visible_rows(user: Any, kind: type[models.Model]) -> "models.QuerySet[Any]":
    """Return the rows that pretix's managers show the user."""
    with scope(organizer=list_organizers(user)):
        keys = list(kind._default_manager.values_list("pk", flat=True)) if list_organizers(user) else []
    # Django's own manager: the managers of pretix need a scope.
    return models.QuerySet(kind).filter(pk__in=keys)

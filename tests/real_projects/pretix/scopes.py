"""The tenants of a caller: `AROUND` of the server, and the hooks of its toolsets."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_scopes import scope, scopes_disabled
from pretix.base.models import Organizer

from mcp_django import Context, ModelToolset
from mcp_django.contrib.rest import add_session


def enter_organizers(ctx: Context) -> Any:
    """Return the scope of the organizers whose teams the caller belongs to."""
    return scope(organizer=list_organizers(ctx.user))


def list_organizers(user: Any) -> list[Any]:
    """Return the organizers that pretix shows a user; all of them to staff, and to callers of this machine."""
    organizers = Organizer.objects.all()
    is_limited = user is not None and not user.is_staff
    return list(organizers.filter(teams__members=user).distinct() if is_limited else organizers)


@contextmanager
def enter_organizer(request: Any) -> Iterator[None]:
    """Prepare the request of a view of pretix: a session, and the scope that its middleware enters by the path."""
    add_session(request)
    request.session["pretix_auth_login_time"] = request.session["pretix_auth_last_used"] = int(time.time())
    request.session["pretix_auth_long_session"] = True
    match = request.resolver_match
    if match is None:  # the schemas are read
        with scopes_disabled():
            yield
        return
    with scopes_disabled():
        request.organizer = Organizer.objects.filter(slug=match.kwargs.get("organizer", "")).first()
    with scope(organizer=request.organizer):
        yield


class TenantToolset(ModelToolset):
    """Base of all toolsets. pretix has no permissions of Django: members of a team read the rows of its organizer."""

    def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
        return bool(list_organizers(ctx.user))

    def has_add_permission(self, ctx: Context) -> bool:
        return False

    def has_change_permission(self, ctx: Context, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, ctx: Context, obj: Any = None) -> bool:
        return False

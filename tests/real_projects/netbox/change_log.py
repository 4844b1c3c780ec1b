"""`AROUND` of the servers: NetBox writes its change log for the request in a context variable."""

import uuid
from contextlib import AbstractContextManager
from typing import Any

from django.http import HttpRequest
from netbox.context_managers import event_tracking
from users.constants import CONSTRAINT_TOKEN_USER
from utilities.permissions import qs_filter_from_constraints

from mcp_django import Context
from mcp_django.orm.row_filters import filter_by_restrict


def track_events(ctx: Context) -> AbstractContextManager[Any]:
    """Return NetBox's own context manager, for the request of the call."""
    request: Any = ctx.request or HttpRequest()  # calls in process have none
    request.id, request.user = uuid.uuid4(), ctx.user
    manager: AbstractContextManager[Any] = event_tracking(request)
    return manager


def filter_rows(user: Any, permission: str, rows: Any) -> Any:
    """Return the rows on which NetBox gives the permission; models without `restrict()` by the same constraints."""
    if hasattr(rows, "restrict"):
        return filter_by_restrict(user, permission, rows)
    if permission not in user.get_all_permissions():  # fills the cache of NetBox's backend
        return rows.none()
    constraints = user._object_perm_cache[permission]
    return rows.filter(qs_filter_from_constraints(constraints, {CONSTRAINT_TOKEN_USER: user}))

"""Writes in the admin's log, where the admin is installed: its history pages then show what clients did."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db.models import Model
from django.utils.translation import override

from mcp_django.server.context.context import Context

ADDITION, CHANGE, DELETION = 1, 2, 3
"""`django.contrib.admin.models`, which cannot be imported where the admin is not installed."""

Message = list[dict[str, Any]]


def log_entries() -> Any:
    """The model LogEntry, or None without the admin."""
    return apps.get_model("admin", "LogEntry") if apps.is_installed("django.contrib.admin") else None


def write(ctx: Context, rows: Iterable[Model], flag: int, message: str | Message = "") -> None:
    """Note that the user of the call did this. Nothing is noted without the admin, and for callers who are no users of
    the site: an entry needs one.
    """
    entries, user = log_entries(), ctx.user
    if entries is None or not isinstance(user, get_user_model()) or user.pk is None:
        return
    entries.objects.log_actions(user.pk, list(rows), flag, message)


def added(what: Model | None = None) -> Message:
    """The row was created; or `what`, one of its inlines."""
    return [{"added": {} if what is None else _named(what)}]


def changed(fields: Sequence[Any], what: Model | None = None) -> Message:
    """These fields of the row were changed, named by their forms' labels; or those of `what`, one of its inlines."""
    with override(None):  # to be translated when it is read
        labels = [str(label) for label in fields]
        return [{"changed": {**({} if what is None else _named(what)), "fields": labels}}]


def deleted(what: Model) -> Message:
    """An inline of the row was deleted."""
    return [{"deleted": _named(what)}]


def _named(row: Model) -> dict[str, str]:
    with override(None):
        return {"name": str(row._meta.verbose_name), "object": str(row)}

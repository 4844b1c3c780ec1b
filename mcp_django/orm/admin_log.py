"""Log of the admin: writes of clients appear on its history pages."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db.models import Model
from django.utils.translation import override

from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.server.context.context import Context

ADDITION, CHANGE, DELETION = 1, 2, 3
"""Flags of `django.contrib.admin.models`.

That module cannot be imported unless the admin is installed.
"""

Message = list[JSONObject]


def get_log_entry_model() -> Any:
    """Return the model LogEntry, or None without the admin."""
    return apps.get_model("admin", "LogEntry") if apps.is_installed("django.contrib.admin") else None


def write_entries(ctx: Context, rows: Iterable[Model], flag: int, message: str | Message = "") -> None:
    """Record a write of the call's user.

    Log entries require a user, so nothing is recorded for other callers or without the admin.
    """
    entries, user = get_log_entry_model(), ctx.user
    if entries is None or not isinstance(user, get_user_model()) or user.pk is None:
        return
    entries.objects.log_actions(user.pk, list(rows), flag, message)


def build_added_message(inline_row: Model | None = None) -> Message:
    """Build the message that the row, or one of its inline rows, was added."""
    return [{"added": {} if inline_row is None else _describe_row(inline_row)}]


def build_changed_message(fields: Sequence[Any], inline_row: Model | None = None) -> Message:
    """Build the message that fields of the row, or of an inline row, were changed.

    `fields` are the labels of form fields.
    """
    with override(None):  # untranslated: the admin translates messages for its readers
        labels = [str(label) for label in fields]
        return [{"changed": {**({} if inline_row is None else _describe_row(inline_row)), "fields": labels}}]


def build_deleted_message(inline_row: Model) -> Message:
    """Build the message that an inline row was deleted."""
    return [{"deleted": _describe_row(inline_row)}]


def _describe_row(row: Model) -> dict[str, str]:
    with override(None):
        return {"name": str(row._meta.verbose_name), "object": str(row)}

"""`history`: changes of a row from the admin's log, by clients and administrators.

The log contains all fields. These parts are removed:

- fields that the toolset does not show, and entries without any shown field.
- earlier labels of the row.
- names of other users, unless the caller may see users.
- free texts, whose content is unknown.
"""

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.utils.text import capfirst
from django.utils.translation import override

from mcp_django.orm.admin_log import ADDITION, CHANGE, DELETION, get_log_entry_model
from mcp_django.orm.codecs.django_fields import format_datetime
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.rows.lookup import find_rows
from mcp_django.orm.rows.schema import pk_schema
from mcp_django.orm.schema import Schema, object_schema
from mcp_django.orm.tools.base import ReadQuery
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.schema import ANY_VALUE_SCHEMA, DeclarationError
from mcp_django.server.context.context import Context

MAX_LOG_ENTRIES = 1000
"""Maximum number of log entries that one call reads."""
_KIND_NAMES = {ADDITION: "added", CHANGE: "changed", DELETION: "deleted"}


def check_log(toolset: BaseModelToolset) -> None:
    """Check that the admin's log exists.

    Raises:
        DeclarationError: the admin is not installed.
    """
    if get_log_entry_model() is None:
        raise DeclarationError(
            f"{toolset.source}: the tool 'history' reads the admin's log; install django.contrib.admin"
        )


def arguments_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `history`."""
    limit = {"type": "integer", "minimum": 1, "maximum": toolset.max_limit, "default": toolset.page_size}
    offset = {
        "type": "integer",
        "minimum": 0,
        "maximum": MAX_LOG_ENTRIES,
        "default": 0,
        "description": "Entries to skip",
    }
    return object_schema({"pk": pk_schema(toolset), "limit": limit, "offset": offset}, ("pk",))


def result_schema(toolset: BaseModelToolset) -> Schema:
    """Return the output schema of `history`."""
    text: Schema = {"type": "string"}
    kind = {"type": "string", "enum": list(_KIND_NAMES.values())}
    user = object_schema({"you": {"type": "boolean"}, "pk": ANY_VALUE_SCHEMA, "label": text}, ("you",))
    inline_schema = object_schema({"name": text, "kind": kind}, ("name", "kind"))

    entry = object_schema(
        {
            "time": {"type": "string", "format": "date-time"},
            "kind": kind,
            "fields": {"type": "array", "items": text, "description": "What was changed"},
            "inlines": {"type": "array", "items": inline_schema, "description": "What was done to rows below it"},
            "action": {**text, "description": "The action that was run"},
            "by": user,
        },
        ("time", "kind", "fields", "by"),
    )
    return object_schema({"items": {"type": "array", "items": entry}, "more": {"type": "boolean"}}, ("items", "more"))


def read_history(toolset: BaseModelToolset, ctx: Context, arguments: JSONObject) -> JSONObject:
    """Return the entries.

    Raises:
        NotFound: the row is missing or hidden from the caller.
    """
    limit, offset = arguments.get("limit", toolset.page_size), arguments.get("offset", 0)
    with ReadQuery(toolset, ctx) as query:
        has_permission = toolset.has_view_permission
        (row,) = find_rows(toolset, ctx, [arguments["pk"]], using=query.database, has_permission=has_permission)

        kinds = apps.get_model("contenttypes", "ContentType").objects
        entries = get_log_entry_model().objects.filter(
            content_type=kinds.get_for_model(row, for_concrete_model=False), object_id=str(row.pk)
        )

        serializer = _HistorySerializer(toolset, ctx)
        items = list(serializer.serialize_entries(entries.order_by("-action_time", "-pk")[:MAX_LOG_ENTRIES]))
        page = items[offset : offset + limit]
        serializer.add_users(page)
    return {"items": [item for item, _ in page], "more": len(items) > offset + limit}


class _HistorySerializer:
    """Serializer of log entries for one caller."""

    def __init__(self, toolset: BaseModelToolset, ctx: Context) -> None:
        self._toolset = toolset
        self._ctx = ctx
        self._fields: dict[str, str] = {}

        with override(None):
            for name, item in toolset.exposure.fields.items():
                if item.model_field is not None and not item.hops:
                    form_field = toolset.declared_writable_form.form.base_fields.get(name)
                    verbose = str(getattr(item.model_field, "verbose_name", name))
                    labels = {name, verbose, capfirst(verbose), str(getattr(form_field, "label", None) or name)}
                    self._fields |= dict.fromkeys(labels, name)
            self._inlines = {
                str(inline.model._meta.verbose_name): inline.name
                for inline in toolset.inline_toolsets
                if inline.can_view(ctx)
            }

        self._actions = set(toolset.action_titles.values())

    def serialize_entries(self, entries: Any) -> Iterator[tuple[JSONObject, Any]]:
        """Yield serialized entries, each with its log entry."""
        for entry in entries:
            item = self._serialize_entry(entry)
            if item is not None:
                yield item, entry

    def _serialize_entry(self, entry: Any) -> JSONObject | None:
        item: JSONObject = {
            "time": format_datetime(entry.action_time),
            "kind": _KIND_NAMES.get(entry.action_flag, "changed"),
            "fields": [],
        }
        text = entry.change_message
        if text in self._actions:
            return {**item, "action": text}

        parts, has_hidden_parts = _parse_message(text), False
        inlines = []
        for part in parts or ():
            for kind, details in part.items():
                name = details.get("name")
                if name is None:
                    known = [self._fields[label] for label in details.get("fields", ()) if label in self._fields]
                    has_hidden_parts = has_hidden_parts or len(known) < len(details.get("fields", ()))
                    item["fields"] += known
                elif name in self._inlines:
                    inlines.append({"name": self._inlines[name], "kind": kind})
                else:
                    has_hidden_parts = True

        if inlines:
            item["inlines"] = inlines
        is_empty = not item["fields"] and not inlines and (has_hidden_parts or parts is None)
        return None if is_empty and entry.action_flag == CHANGE else item

    def add_users(self, page: list[tuple[JSONObject, Any]]) -> None:
        """Add the user to each item, with a name if the caller may see users."""
        caller_pk = getattr(self._ctx.user, "pk", None)
        target = self._toolset.find_toolset(get_user_model())

        labels: dict[Any, Any] = {}
        if target is not None and target.can_view(self._ctx) and target.label_path is not None:
            rows = target.get_queryset(self._ctx).filter(pk__in={entry.user_id for _, entry in page})
            labels = {row.pk: row for row in rows if target.has_view_permission(self._ctx, row)}

        for item, entry in page:
            item["by"] = {"you": caller_pk is not None and entry.user_id == caller_pk}
            if target is not None and entry.user_id in labels:
                item["by"]["pk"] = target.exposure.pk.codec.serialize(entry.user_id)
                item["by"]["label"] = str(getattr(labels[entry.user_id], str(target.label_path)))


def _parse_message(text: str) -> list[JSONObject] | None:
    """Parse a message in the structure of LogEntry; return None for free text."""
    try:
        parts = jsonrpc.loads(text.encode()) if text else []
    except ValueError:
        return None
    well_formed = isinstance(parts, list) and all(
        isinstance(part, dict) and all(isinstance(what, dict) for what in part.values()) for part in parts
    )
    return parts if well_formed else None

"""Round trips of a column: a row is shown, found by its shown value, and unchanged when that value is written back."""

from typing import Any

from django.db import models

from mcp_django import ModelToolset
from tests.orm.toolsets import data, peer

TOOLS = ("describe", "list", "get", "count", "create", "update")


def build_toolset(row_model: type[models.Model], *names: str) -> type[ModelToolset]:
    """Return a toolset of the columns of a model."""
    options = {"model": row_model, "fields": list(names), "list_filter": "__all__", "tools": TOOLS, "prefix": "row"}
    return type("Rows", (ModelToolset,), options)


async def check_round_trip(row_model: type[models.Model], name: str, value: Any, **others: Any) -> Any:
    """Store a value beside others, check its round trip, and return it as JSON.

    The server checks that the result fits its schema.
    """
    row = await row_model._default_manager.acreate(**{**others, name: value})
    await row.arefresh_from_db()
    server = peer(build_toolset(row_model, name))
    shown = (await data(server, "row_get", pk=row.pk))[name]

    [described] = (await data(server, "row_describe"))["fields"]
    if "exact" in described["lookups"] and shown is not None:
        found = await data(server, "row_list", filters={name: shown, "pk": row.pk})
        assert [item["pk"] for item in found["items"]] == [row.pk], shown

    stored = getattr(row, name)
    saved = await data(server, "row_update", pk=row.pk, values={name: shown})
    assert saved["changed"] == []
    assert saved["item"][name] == shown
    again = await row_model._default_manager.aget(pk=row.pk)
    assert again._meta.get_field(name).get_prep_value(getattr(again, name)) == row._meta.get_field(  # type: ignore[union-attr]
        name
    ).get_prep_value(stored)
    return shown

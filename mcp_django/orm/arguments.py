"""Descriptions of the arguments that tools of models share.

`describe` returns them in full, once for all tools of a toolset. Schemas then hold a short form. A toolset without
`describe` has the full form in its schemas.
"""

import datetime as dt
import json
from collections.abc import Iterable
from typing import NamedTuple

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.exposed_fields import ExposedField
from mcp_django.orm.queries.visibility import MAX_FILTER_DEPTH
from mcp_django.protocol.jsonrpc import JSONObject


class ArgumentDescription(NamedTuple):
    """Description of an argument, in two lengths."""

    short: str
    full: str


ARGUMENT_DESCRIPTIONS = {
    "search": ArgumentDescription("", "Words that rows must contain; a phrase in double quotes"),
    "order_by": ArgumentDescription("Descending with a leading -", "Orderable fields; descending with a leading -"),
    "fields": ArgumentDescription("Fields to show", "Fields of a row to show; all if left out"),
    "cursor": ArgumentDescription("", "next_cursor of the previous page; the other arguments stay the same"),
    "with_total": ArgumentDescription("", "Count all matching rows too, with one more statement"),
    "group_by": ArgumentDescription("Fields", "Orderable fields; of dates also name__year, name__month and name__day"),
    "metrics": ArgumentDescription(
        "Default: count",
        "Values to compute for each group; the number of rows if left out. count needs no field. distinct counts "
        "different values. A metric is named count, function_field or function_distinct_field, unless name is given",
    ),
    "having": ArgumentDescription(
        'Conditions on metrics: {"count__gte": 5}',
        'Conditions on metrics, such as {"count__gte": 5}, with gt, gte, lt or lte; equality without a lookup',
    ),
    "inlines": ArgumentDescription(
        "Changes of rows below it; see describe",
        "Changes of rows below it, by inline, with the keys add, change and delete; create takes add only",
    ),
    "if_match": ArgumentDescription(
        "The row's _version", "_version of the row as you read it; nothing is done if the row has changed since"
    ),
    "dry_run": ArgumentDescription(
        "Try it, then undo it", "Execute and check everything, return the result, and undo it. A new row gets no pk"
    ),
    "idempotency_key": ArgumentDescription(
        "New for each intended write",
        "A text of your own, new for each intended write. A repeated call with the same key is not executed again: it "
        "returns the first result",
    ),
}
"""Descriptions by argument; that of `filters` has examples from the toolset's fields."""
_EXAMPLE_TIME = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
_EXAMPLE_VALUES: JSONObject = {
    "integer": 10,
    "number": 1.5,
    "decimal": "9.50",
    "date": _EXAMPLE_TIME.date().isoformat(),
    "date-time": _EXAMPLE_TIME.isoformat(),
    "time": "14:30",
    "duration": "PT2H30M",
}
"""Example of a value to compare with, by the kind of a codec."""


def is_described(toolset: BaseModelToolset) -> bool:
    """Return True if the toolset serves `describe`."""
    return "describe" in toolset.tools


def describe_argument(toolset: BaseModelToolset, name: str) -> dict[str, str]:
    """Return the description of an argument for a schema; {} if its name suffices."""
    text = ARGUMENT_DESCRIPTIONS[name].short if is_described(toolset) else ARGUMENT_DESCRIPTIONS[name].full
    return {"description": text} if text else {}


def describe_filters(toolset: BaseModelToolset) -> ArgumentDescription:
    """Return the description of the argument `filters`, with examples from the model's own fields."""
    first, second = _build_filter_examples(item for item in toolset.exposure.filters.values() if not item.hops)
    short = f"Conditions by field, or field__lookup: {json.dumps(first | second)}; see describe"
    example = json.dumps({**first, "or": [second, {"not": first}]})
    full = (
        f"Conditions, all of which must hold: a field's name for equality, or name__lookup, such as {example}. in "
        "takes a list, range a list of two, isnull true or false. and, or and not nest up to "
        f"{MAX_FILTER_DEPTH} levels"
    )
    return ArgumentDescription(short, full)


def describe_arguments(toolset: BaseModelToolset, names: Iterable[str]) -> dict[str, str]:
    """Return the full descriptions of those arguments that have one, by name."""
    descriptions = {**ARGUMENT_DESCRIPTIONS, "filters": describe_filters(toolset)}
    return {name: descriptions[name].full for name in names if name in descriptions}


def _build_filter_examples(items: Iterable[ExposedField]) -> tuple[JSONObject, JSONObject]:
    """Return two filters: of a text and of a range, if the fields support them.

    The primary key can always be filtered, so there is at least one field.
    """
    fields = sorted(items, key=lambda item: item.name == "pk" or item.is_relation)
    texts = [{f"{item.name}__icontains": "a"} for item in fields if "icontains" in item.codec.lookups]
    ranges = [
        {f"{item.name}__gte": _EXAMPLE_VALUES[item.codec.kind]} for item in fields if item.codec.kind in _EXAMPLE_VALUES
    ]
    others = [{f"{item.name}__isnull": False} for item in fields]
    first, second = [*texts[:1], *ranges[:1], *others, *others][:2]
    return first, second

"""Filters and search of a client as a queryset.

All names pass through `VisibilityScope.resolve_field`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

from django.db.models import Exists, OuterRef, Q
from django.db.models.constants import LOOKUP_SEP
from django.utils.text import smart_split, unescape_string_literal

from mcp_django.orm.codecs.codec import LOOKUPS, Convert
from mcp_django.orm.codecs.parsing import (
    parse_boolean_value,
    parse_date_value,
    parse_integer_value,
    parse_text_value,
)
from mcp_django.orm.declaration.exposed_fields import ExposedField, Purpose
from mcp_django.orm.queries.visibility import (
    MAX_FILTER_CONDITIONS,
    MAX_FILTER_DEPTH,
    MAX_LIST_VALUES,
    MAX_SEARCH_WORDS,
    VisibilityScope,
)
from mcp_django.orm.row_permissions import Rows
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.schema import list_types

_BRANCHES = ("and", "or", "not")


class FilterBuilder:
    """Builder of one condition from a client's filters; counts and limits its parts."""

    def __init__(self, scope: VisibilityScope) -> None:
        self._scope = scope
        self._conditions = 0
        self.aliases: JSONObject = {}
        """Expressions that the condition refers to, for `QuerySet.alias`."""

    def build_condition(self, filters: JSONMapping, depth: int = 1) -> Q:
        """Return the conjunction of all filters.

        Raises:
            ToolError: a name is unknown, a value has the wrong type, or a limit is exceeded.
        """
        if depth > MAX_FILTER_DEPTH:
            raise ToolError(
                f"filters are nested deeper than {MAX_FILTER_DEPTH} levels of and, or and not; flatten them"
            )
        if not filters:
            raise ToolError("filters: the object is empty; leave it out")
        return Q(*(self._build_entry(name, value, depth) for name, value in filters.items()))

    def _build_entry(self, name: str, value: object, depth: int) -> Q:
        self._conditions += 1
        if self._conditions > MAX_FILTER_CONDITIONS:
            raise ToolError(f"filters hold more than {MAX_FILTER_CONDITIONS} conditions; use several calls")
        if name not in _BRANCHES:
            return self._build_comparison(name, value)

        if name == "not":
            if not isinstance(value, dict):
                raise ToolError("filters: 'not' takes an object of filters")
            return ~self.build_condition(value, depth + 1)

        if not isinstance(value, list) or not value or not all(isinstance(part, dict) for part in value):
            raise ToolError(f"filters: {name!r} takes a list of objects, each with filters")
        parts = [self.build_condition(part, depth + 1) for part in value]
        return Q(*parts, _connector=Q.OR if name == "or" else Q.AND)

    def _build_comparison(self, name: str, value: object) -> Q:
        item, lookup = self._resolve_lookup(name)
        if value is None and lookup == "exact":
            lookup, value = "isnull", True
        if lookup not in item.codec.lookups:
            known = ", ".join(item.codec.lookups)
            raise ToolError(
                f"filters: {item.name} does not support the lookup {lookup[:60]!r}; use {known}; "
                f'{{"not": {{…}}}} negates'
            )

        if isinstance(value, dict) and "object" not in list_types(item.codec.filter_schema or item.codec.schema):
            raise ToolError(f"filters: {name}: give a value; write the lookup into the name, as name__lookup")
        wanted = convert_value(item, lookup, value, f"filters: {name}")
        return self.build_lookup(item, lookup, wanted)

    def _resolve_lookup(self, name: str) -> tuple[ExposedField, str]:
        """Return the field and the lookup of a filter's name.

        The whole name is a field, or its last segment is a lookup.
        """
        path, _, lookup = name.rpartition(LOOKUP_SEP)
        filters = self._scope.toolset.exposure.filters
        # After a column only a lookup can follow. After a relation or a key the segment may be the name of a hidden
        # field.
        is_misspelled = path in filters and path != "pk" and not filters[path].is_relation
        is_lookup = lookup in LOOKUPS or (path in filters and lookup in filters[path].codec.lookups)
        if (not is_lookup and not is_misspelled) or name in filters:
            return self._scope.resolve_field(name, Purpose.FILTER), "exact"
        return self._scope.resolve_field(path, Purpose.FILTER), lookup

    def build_lookup(self, item: ExposedField, lookup: str, value: object) -> Q:
        """Return one comparison with a converted value."""
        if item.is_to_many:
            return self._build_to_many_lookup(item, lookup, value)
        if item.is_caller_independent:
            return Q(**{f"{item.source}{LOOKUP_SEP}{lookup}": value})
        alias = self._scope.create_alias()
        self.aliases[alias] = self._scope.build_expression(item)
        found = Q(**{f"{alias}{LOOKUP_SEP}{lookup}": value})
        # Django handles NULL when it negates a condition on a nullable column. For an expression NULL must be excluded
        # explicitly.
        return found if lookup == "isnull" else Q(**{f"{alias}{LOOKUP_SEP}isnull": False}) & found

    def _build_to_many_lookup(self, item: ExposedField, lookup: str, value: object) -> Q:
        """Return an EXISTS condition on the visible rows of a to-many relation.

        With `isnull` it requires that no visible row has a value. The subquery avoids duplicate rows and keeps negation
        correct.
        """
        scope = self._scope
        is_absence = lookup == "isnull" and value
        wanted = {f"{item.source}{LOOKUP_SEP}{lookup}": False if lookup == "isnull" else value}
        rows = scope.toolset.model._base_manager.using(scope.database).filter(pk=OuterRef("pk"))
        condition = Q(Exists(rows.filter(*scope.build_conditions(item), **wanted)))
        return ~condition if is_absence else condition


def convert_value(item: ExposedField, lookup: str, value: object, where: str) -> object:
    """Convert a JSON value to the operand of a lookup.

    Raises:
        ToolError: the value is invalid for this lookup.
    """
    codec = item.codec
    try:
        operand = codec.lookups[lookup]
        return operand(value) if callable(operand) else _CONVERTERS[operand](codec.decode, value)
    except ValueError as problem:
        raise ToolError(f"{where}: {problem}") from None


def _convert_list(decode: Convert, value: object) -> list[object]:
    if type(value) is not list:
        raise ValueError("give a list of values")
    if len(value) > MAX_LIST_VALUES:
        raise ValueError(f"more than {MAX_LIST_VALUES} values")
    return [decode(item) for item in value]


def _convert_pair(decode: Convert, value: object) -> list[object]:
    if type(value) is not list or len(value) != 2:
        raise ValueError("give a list of two values, from and to")
    return [decode(item) for item in value]


def _convert_date_part(decode: Convert, value: object) -> int:
    number = parse_integer_value(value)
    if not 1 <= number <= 9999:
        raise ValueError("out of range")
    return number


_CONVERTERS: dict[str, Callable[[Convert, Any], Any]] = {
    "value": lambda decode, value: decode(value),
    "list": _convert_list,
    "pair": _convert_pair,
    "text": lambda decode, value: parse_text_value(value),
    "integer": _convert_date_part,
    "boolean": lambda decode, value: parse_boolean_value(value),
    "date": lambda decode, value: parse_date_value(value),
}


class RowConditions(NamedTuple):
    """Conditions of a tool for the rows that it reads."""

    filters: JSONMapping | None
    search: str | None

    @classmethod
    def from_arguments(cls, arguments: JSONMapping) -> Self:
        """Return the conditions in the arguments of a call, which fit the schema of the tool."""
        return cls(arguments.get("filters"), arguments.get("search"))

    def apply(self, scope: VisibilityScope, rows: Rows) -> Rows:
        """Return the rows that match.

        Raises:
            ToolError: the filters or the search are invalid.
        """
        return _apply_search(scope, _apply_filters(scope, rows, self.filters), self.search)


def _apply_filters(scope: VisibilityScope, rows: Rows, filters: JSONMapping | None) -> Rows:
    """Return the rows that match the filters.

    Raises:
        ToolError: the filters are invalid.
    """
    if not filters:
        return rows
    builder = FilterBuilder(scope)
    condition = builder.build_condition(filters)
    if builder.aliases:
        rows = rows.alias(**builder.aliases)
    return rows.filter(condition)


def _apply_search(scope: VisibilityScope, rows: Rows, text: str | None) -> Rows:
    """Return the rows that contain every word in at least one search field.

    Quoted words form one phrase, as in the admin.
    """
    toolset = scope.toolset
    if not text or not text.strip():
        return rows
    hook_rows = toolset.get_search_results(scope.ctx, rows, _check_search_text(text))
    if hook_rows is not None:
        return hook_rows

    fields = [(item, lookup) for item, lookup in toolset.exposure.search if scope.can_use(item)]
    if not fields:
        raise ToolError("search is not supported here; use filters")
    words = [_unquote(word) for word in smart_split(_check_search_text(text))]
    if len(words) > MAX_SEARCH_WORDS:
        raise ToolError(f"search: more than {MAX_SEARCH_WORDS} words")

    builder = FilterBuilder(scope)
    conditions = [
        Q(*(builder.build_lookup(item, lookup, word) for item, lookup in fields), _connector=Q.OR) for word in words
    ]
    return (rows.alias(**builder.aliases) if builder.aliases else rows).filter(*conditions)


def _check_search_text(text: str) -> str:
    try:
        return parse_text_value(text)
    except ValueError as problem:
        raise ToolError(f"search: {problem}") from None


def _unquote(word: str) -> str:
    return unescape_string_literal(word) if word[0] in "\"'" and word[0] == word[-1] and len(word) > 1 else word

"""Keyset pagination: a total order of rows, and signed cursors.

A cursor contains the order values of the last row of a page. All these fields are visible to the caller. The signature
binds it to one server, toolset, caller, order and set of filters, so it cannot be modified or reused for other queries.

Rows that are added or deleted between pages do not duplicate or skip other rows. NULL sorts after every value, as in
PostgreSQL.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from django.core.signing import BadSignature, Signer
from django.db.models import F, OrderBy, Q

from mcp_django.orm.codecs.parsing import MAX_TEXT_CHARACTERS
from mcp_django.orm.declaration.exposed_fields import ExposedField, Purpose
from mcp_django.orm.queries.visibility import VisibilityScope
from mcp_django.orm.row_permissions import Rows
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONMapping

MAX_CURSOR_CHARACTERS = 16_384
"""Maximum length of a cursor in characters."""
_VALUES_TOO_LARGE_MESSAGE = "no next page: the values of this order are too large for a cursor; order by another field"


@dataclass(frozen=True, slots=True, eq=False)
class OrderKey:
    """Field of an order."""

    item: ExposedField
    is_descending: bool
    alias: str


class RowOrder:
    """Total order of one list: given or default order, then the primary key."""

    def __init__(self, scope: VisibilityScope, order_by: Sequence[str] | None) -> None:
        exposure = scope.toolset.exposure
        names = list(order_by) if order_by else get_default_order(scope)
        self._scope = scope
        self.keys: list[OrderKey] = []

        seen: set[str] = set()
        for name in names:
            item = scope.resolve_field(name.removeprefix("-"), Purpose.ORDER)
            if item.source not in seen:
                seen.add(item.source)
                self._add_key(item, name.startswith("-"))
            if item.source == exposure.pk.source:
                break  # a unique key completes the order

        if exposure.pk.source not in seen:
            self._add_key(exposure.pk, self.keys[-1].is_descending if self.keys else False)
        self.is_caller_independent = all(key.item.is_caller_independent for key in self.keys)
        """True if the order is the same for all callers."""
        self.name = ",".join(f"{'-' if key.is_descending else ''}{key.item.name}" for key in self.keys)

    def _add_key(self, item: ExposedField, descending: bool) -> None:
        self.keys.append(OrderKey(item, descending, self._scope.create_alias()))

    def apply(self, rows: Rows) -> Rows:
        """Return the rows in this order, with an annotation for each key that depends on the caller."""
        masked = {
            key.alias: self._scope.build_expression(key.item) for key in self.keys if not key.item.is_caller_independent
        }
        if masked:
            rows = rows.alias(**masked)
        return rows.order_by(*map(self._build_ordering, self.keys))

    @property
    def columns(self) -> list[object]:
        """Return the expressions of the values that a cursor contains."""
        return [F(self._get_path(key)) for key in self.keys]

    def _get_path(self, key: OrderKey) -> str:
        return key.item.source if key.item.is_caller_independent else key.alias

    def _build_ordering(self, key: OrderKey) -> OrderBy:
        if not key.item.is_nullable:
            return OrderBy(F(self._get_path(key)), descending=key.is_descending)
        if key.is_descending:
            return OrderBy(F(self._get_path(key)), descending=True, nulls_first=True)
        return OrderBy(F(self._get_path(key)), nulls_last=True)

    def build_after_condition(self, values: Sequence[object]) -> Q:
        """Return the condition that a row comes after these values of `columns`.

        A row comes after if its first key is greater, or if that is equal and its next key is greater, and so on.
        """

        alternatives, equal = [], Q()
        for key, value in zip(self.keys, values, strict=True):
            beyond = self._build_beyond_condition(key, value)
            if beyond is not None:
                alternatives.append(equal & beyond)
            path = self._get_path(key)
            equal &= Q(**{f"{path}__isnull": True}) if value is None else Q(**{path: value})

        first, value = self.keys[0], values[0]
        after = Q(*alternatives, _connector=Q.OR)
        if len(alternatives) > 1 and value is not None and not first.item.is_nullable:
            # Redundant condition that lets the database use an index.
            after &= Q(**{f"{self._get_path(first)}__{'lte' if first.is_descending else 'gte'}": value})
        return after

    def _build_beyond_condition(self, key: OrderKey, value: object) -> Q | None:
        """Return the condition that a key comes after a value, or None if no value can."""
        path = self._get_path(key)
        if value is None:
            return Q(**{f"{path}__isnull": False}) if key.is_descending else None
        if key.is_descending:
            return Q(**{f"{path}__lt": value})
        greater = Q(**{f"{path}__gt": value})
        return greater | Q(**{f"{path}__isnull": True}) if key.item.is_nullable else greater

    def sign_cursor(self, query_digest: bytes, values: Sequence[object]) -> str:
        """Return the cursor after a row with these values of `columns`.

        Raises:
            ToolError: the values are too large for a cursor.
        """
        serialized = [key.item.codec.serialize(value) for key, value in zip(self.keys, values, strict=True)]
        if any(type(value) is str and len(value) > MAX_TEXT_CHARACTERS for value in serialized):
            raise ToolError(_VALUES_TOO_LARGE_MESSAGE)
        return self._build_signer(query_digest).sign_object(serialized)

    def read_cursor(self, query_digest: bytes, cursor: str) -> list[object]:
        """Return the values in a cursor.

        Raises:
            ToolError: the cursor was created for another query, or is invalid.
        """
        try:
            if len(cursor) > MAX_CURSOR_CHARACTERS:
                raise ValueError
            values = self._build_signer(query_digest).unsign_object(cursor)
            return [
                None if value is None else key.item.codec.decode(value)
                for key, value in zip(self.keys, values, strict=True)
            ]
        except (BadSignature, ValueError):  # forged, created for another query, or the type of a field has changed
            raise ToolError(
                "cursor: invalid for these filters, this search and this order; start again without a cursor"
            ) from None

    def _build_signer(self, query_digest: bytes) -> Signer:
        ctx = self._scope.ctx
        parts = ("mcp_django.orm", ctx.server.alias, self._scope.toolset.prefix, ctx.principal.key, self.name)
        binding = hashlib.blake2b("\0".join(parts).encode() + query_digest, digest_size=16)
        return Signer(salt=binding.hexdigest())


def get_default_order(scope: VisibilityScope) -> list[str]:
    """Return the default order: the toolset's, or the shown start of the model's."""
    toolset = scope.toolset
    known = toolset.exposure.ordering
    names = [str(name) for name in toolset.get_ordering(scope.ctx)]
    if not names:
        for name in toolset.model._meta.ordering or ():
            if not isinstance(name, str) or name.removeprefix("-") not in known:
                break
            names.append(name)
    plain = ((name, known.get(name.removeprefix("-"))) for name in names)
    return [name for name, item in plain if item is not None and scope.can_use(item)]


def digest_query(query: JSONMapping) -> bytes:
    """Return the digest of filters and search that binds a cursor to them."""
    return hashlib.blake2b(json.dumps(query, sort_keys=True).encode(), digest_size=16).digest()

"""Pages of a list: the order made total, and cursors that say after which row to go on (keyset pagination).

A cursor holds the values that the last row was ordered by, all of them of fields that the caller may see. It is signed
for one server, toolset, caller, order and set of filters: it cannot be changed, or used for another question. Rows that
are added or deleted meanwhile make no other row come twice or never. Null counts as greater than every value, as
PostgreSQL orders it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.signing import BadSignature, Signer
from django.db.models import F, OrderBy, Q, QuerySet

from mcp_django.orm.fields.codecs import TEXT
from mcp_django.orm.fields.exposed_fields import ExposedField, Purpose
from mcp_django.orm.queries.visibility import Scope
from mcp_django.protocol.errors import ToolError

LONGEST = 16_384
"""Characters of a cursor."""
_TOO_LARGE = "there is no next page in this order, whose values are too large for a cursor; order by another field"


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """One field of an order."""

    item: ExposedField
    descending: bool
    alias: str


class Order:
    """The order of one list: what was asked for, or the toolset's, and the primary key as the last word."""

    def __init__(self, scope: Scope, asked: Sequence[str] | None) -> None:
        exposure = scope.toolset.exposure
        names = list(asked) if asked else default_order(scope)
        self._scope = scope
        self.keys: list[Key] = []
        seen: set[str] = set()
        for name in names:
            item = scope.resolve(name.removeprefix("-"), Purpose.ORDER)
            if item.source not in seen:
                seen.add(item.source)
                self._add(item, name.startswith("-"))
            if item.source == exposure.pk.source:
                break  # nothing is left to decide
        if exposure.pk.source not in seen:
            self._add(exposure.pk, self.keys[-1].descending if self.keys else False)
        self.is_plain = all(key.item.is_plain for key in self.keys)
        """Does it mean the same to everybody?"""
        self.name = ",".join(f"{'-' if key.descending else ''}{key.item.name}" for key in self.keys)

    def _add(self, item: ExposedField, descending: bool) -> None:
        self.keys.append(Key(item, descending, self._scope.alias()))

    def apply(self, rows: "QuerySet[Any, Any]") -> "QuerySet[Any, Any]":
        """Order the rows."""
        masked = {key.alias: self._scope.expression(key.item) for key in self.keys if not key.item.is_plain}
        if masked:
            rows = rows.alias(**masked)
        return rows.order_by(*map(self._ordering, self.keys))

    @property
    def columns(self) -> list[Any]:
        """What the database is asked for so that a cursor can be made of a row."""
        return [F(self._path(key)) for key in self.keys]

    def _path(self, key: Key) -> str:
        return key.item.source if key.item.is_plain else key.alias

    def _ordering(self, key: Key) -> OrderBy:
        if not key.item.nullable:
            return OrderBy(F(self._path(key)), descending=key.descending)
        if key.descending:
            return OrderBy(F(self._path(key)), descending=True, nulls_first=True)
        return OrderBy(F(self._path(key)), nulls_last=True)

    def after(self, values: Sequence[Any]) -> Q:
        """That a row of `apply` comes after the one with these values of `columns`.

        Greater in the first key, or equal there and greater in the next, and so on.
        """
        found, equal = [], Q()
        for key, value in zip(self.keys, values, strict=True):
            beyond = self._beyond(key, value)
            if beyond is not None:
                found.append(equal & beyond)
            path = self._path(key)
            equal &= Q(**{f"{path}__isnull": True}) if value is None else Q(**{path: value})
        first, value = self.keys[0], values[0]
        after = Q(*found, _connector=Q.OR)
        if len(found) > 1 and value is not None and not first.item.nullable:
            # Said once more for the database's index.
            after &= Q(**{f"{self._path(first)}__{'lte' if first.descending else 'gte'}": value})
        return after

    def _beyond(self, key: Key, value: Any) -> Q | None:
        """That a key comes after a value; None when nothing does."""
        path = self._path(key)
        if value is None:
            return Q(**{f"{path}__isnull": False}) if key.descending else None
        if key.descending:
            return Q(**{f"{path}__lt": value})
        greater = Q(**{f"{path}__gt": value})
        return greater | Q(**{f"{path}__isnull": True}) if key.item.nullable else greater

    def sign(self, question: bytes, values: Sequence[Any]) -> str:
        """The cursor after a row with these values of `columns`. Raises ToolError when they are too large."""
        shown = [key.item.codec.shown(value) for key, value in zip(self.keys, values, strict=True) if key.item.codec]
        if any(type(value) is str and len(value) > TEXT for value in shown):
            raise ToolError(_TOO_LARGE)
        return self._signer(question).sign_object(shown)

    def read(self, question: bytes, cursor: str) -> list[Any]:
        """The values in a cursor. Raises ToolError for one that was not made for this question."""
        try:
            if len(cursor) > LONGEST:
                raise ValueError
            values = self._signer(question).unsign_object(cursor)
            return [
                None if value is None or key.item.codec is None else key.item.codec.decode(value)
                for key, value in zip(self.keys, values, strict=True)
            ]
        except (BadSignature, ValueError):  # foreign, invented, or of a field that has changed since
            raise ToolError(
                "cursor: this is none for these filters, this search and this order; begin again without a cursor"
            ) from None

    def _signer(self, question: bytes) -> Signer:
        ctx = self._scope.ctx
        parts = ("mcp_django.orm", ctx.server.alias, self._scope.toolset.prefix, ctx.principal.key, self.name)
        binding = hashlib.blake2b("\0".join(parts).encode() + question, digest_size=16)
        return Signer(salt=binding.hexdigest())


def default_order(scope: Scope) -> list[str]:
    """The order of a list that asks for none: the toolset's, or the model's as far as it is shown."""
    toolset = scope.toolset
    known = toolset.exposure.ordering
    names = [str(name) for name in toolset.get_ordering(scope.ctx)]
    if not names:
        for name in toolset.model._meta.ordering or ():
            if not isinstance(name, str) or name.removeprefix("-") not in known:
                break
            names.append(name)
    plain = ((name, known.get(name.removeprefix("-"))) for name in names)
    return [name for name, item in plain if item is not None and scope.sees(item)]


def digest_of(question: Mapping[str, Any]) -> bytes:
    """What a cursor is bound to of the arguments: the filters and the search."""
    return hashlib.blake2b(json.dumps(question, sort_keys=True).encode(), digest_size=16).digest()

"""Exposed fields: the names that a client may use, with their columns.

These names are the only access to columns. A client's name is matched against them as a whole and never split, so an
undeclared path is unknown. A declared path crosses a relation only under these conditions:

- The related model has a toolset on the same server.
- That toolset shows the field.
- That toolset allows the caller to view rows, and only its visible rows are included.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models.constants import LOOKUP_SEP

from mcp_django.orm.fields.codecs import Codec, codec_of
from mcp_django.orm.fields.computed import Computed, computed_of
from mcp_django.schema import DeclarationError

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset


class Purpose(StrEnum):
    """Use of a field by a client."""

    READ = "field"
    FILTER = "filter"
    ORDER = "order"
    SEARCH = "search"
    AGGREGATE = "aggregate"
    WRITE = "write"


@dataclass(frozen=True, slots=True, eq=False)
class Hop:
    """Relation that a path crosses."""

    path: str
    """Path from the toolset's model to this relation, such as "region__country"."""
    target: "ModelToolset"
    """Toolset of the model on the other side."""
    many: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExposedField:
    """Field name that clients may use."""

    name: str
    hops: tuple[Hop, ...] = ()
    """Relations on the path, in order."""
    source: str = ""
    """ORM path of the value, such as "country__name"; empty if computed."""
    codec: Codec | None = None
    """Codec of the value; None if computed."""
    nullable: bool = False
    is_relation: bool = False
    """True if the value is the primary key of another row."""
    target: "ModelToolset | None" = None
    """Toolset of the related model, if the server has one."""
    label: str | None = None
    """ORM path of the label of the related row."""
    many: bool = False
    """True if the field has several values."""
    computed: Computed | None = None
    """Method or property that computes the value."""
    model_field: Any = None
    """Django's field at the end of the path; None if computed."""
    sensitive: bool = False
    """True if the field is only shown.

    Filters, orders and aggregates would allow guessing its values.
    """

    @property
    def is_plain(self) -> bool:
        """Return True if the value is the same for all callers.

        It depends on the caller if rows on the path may be hidden.
        """
        return not any(hop.target.is_scoped for hop in self.hops) and not (
            self.is_relation and self.target is not None and self.target.is_scoped
        )

    @property
    def is_column(self) -> bool:
        """Return True if the field has one value that the database can read and order by."""
        return self.computed is None and not self.many


@dataclass(frozen=True, slots=True, eq=False)
class Exposure:
    """Exposed fields of a toolset, cached as `toolset.exposure`."""

    toolset: "ModelToolset"
    fields: Mapping[str, ExposedField]
    """Fields of rows, in declared order."""
    filters: Mapping[str, ExposedField]
    ordering: Mapping[str, ExposedField]
    search: tuple[tuple[ExposedField, str], ...]
    """Search fields, each with its lookup."""
    pk: ExposedField
    problems: tuple[str, ...] = ()
    """Messages about declared paths that are invalid on this server.

    These paths are left out. A system check reports them.
    """
    plans: dict[Any, Any] = field(default_factory=dict)
    """Cache of compiled read plans and forms, filled by other modules."""

    @property
    def aggregates(self) -> Mapping[str, ExposedField]:
        """Return the fields to group and aggregate by."""
        return self.ordering

    def names(self, purpose: Purpose) -> Mapping[str, ExposedField]:
        """Return the fields for a purpose, by name."""
        match purpose:
            case Purpose.FILTER:
                return self.filters
            case Purpose.ORDER | Purpose.AGGREGATE:
                return self.ordering
            case Purpose.SEARCH:
                return {item.name: item for item, _ in self.search}
            case Purpose.WRITE:
                return self.writable
        return {"pk": self.pk, **self.fields}

    @property
    def writable(self) -> Mapping[str, ExposedField]:
        """Return the shown, editable fields of the model that are not read-only."""
        readonly = set(self.toolset.readonly_fields)
        return {
            name: item
            for name, item in self.fields.items()
            if not item.hops
            and item.model_field is not None
            and getattr(item.model_field, "editable", False)
            and not getattr(item.model_field, "auto_created", False)
            and name not in readonly
        }


def expose(toolset: "ModelToolset") -> Exposure:
    """Compile a toolset's declaration together with its server's toolsets."""
    compiler = _Compiler(toolset)
    shown = {item.name: item for item in compiler.each(toolset.field_names())}
    pk = compiler.own("pk")
    known = {**shown, "pk": pk}

    filters = {"pk": pk}
    wanted = list(shown) if toolset.list_filter == "__all__" else toolset.list_filter
    for name in wanted:
        item = compiler.reachable(name, known)
        if item is not None and item.computed is None and not item.sensitive:
            filters[name] = item

    search = []
    for name in toolset.search_fields:
        lookup, path = search_lookup(name)
        item = compiler.reachable(path, known)
        if item is not None and item.codec is not None and not item.sensitive:
            search.append((item, lookup))

    order = {
        name: item
        for name, item in {**known, **filters}.items()
        if item.is_column and not item.sensitive and not any(hop.many for hop in item.hops) and is_orderable(item)
    }
    return Exposure(toolset, shown, filters, order, tuple(search), pk, tuple(compiler.problems))


def is_orderable(item: ExposedField) -> bool:
    """Return True if the database can order by the field."""
    return item.codec is not None and item.codec.orderable


def search_lookup(name: str) -> tuple[str, str]:
    """Split an entry of `search_fields` into lookup and path, as ModelAdmin does."""
    if name[:1] in _SEARCH:
        return _SEARCH[name[0]], name[1:]
    return "icontains", name


_SEARCH = {"^": "istartswith", "=": "iexact"}


class _Compiler:
    """Compiler of one toolset's names to exposed fields."""

    def __init__(self, toolset: "ModelToolset") -> None:
        self.toolset = toolset
        self.problems: list[str] = []

    def each(self, names: "Iterator[str] | tuple[str, ...]") -> Iterator[ExposedField]:
        for name in names:
            item = self.field(name)
            if item is not None:
                yield item

    def reachable(self, name: str, known: Mapping[str, ExposedField]) -> ExposedField | None:
        """Return a shown field, or a path through a shown relation."""
        if name in known:
            return known[name]
        first, crosses, _ = name.partition(LOOKUP_SEP)
        if not crosses or first not in known or not known[first].is_relation:
            self.problems.append(f"{name!r} is not shown: add it, or the relation it begins with, to fields")
            return None
        return self.field(name)

    def field(self, name: str) -> ExposedField | None:
        """Compile a declared name, or record a problem if its path is invalid."""
        if LOOKUP_SEP not in name or self.toolset.own_method(name) or hasattr(self.toolset.model, name):
            return self.own(name)

        hops: list[Hop] = []
        here, null, *segments = self.toolset, False, *name.split(LOOKUP_SEP)
        for number, segment in enumerate(segments[:-1], start=1):
            relation = relation_of(here.model, segment)
            if relation is None:
                return self._nowhere(name, f"{segment!r} is not a relation of {here.model._meta.label}")
            if number > 1 and not here.shows(segment):
                return self._nowhere(name, f"the toolset of {here.model._meta.label} does not show {segment!r}")
            target = here.beside(relation.related_model)
            if target is None:
                label = relation.related_model._meta.label
                return self._nowhere(name, f"{label} has no toolset on this server")
            null = null or is_nullable(relation)
            hops.append(Hop(LOOKUP_SEP.join(segments[:number]), target, is_many(relation)))
            here = target

        last = segments[-1]
        if not here.shows(last) and last != "pk":
            return self._nowhere(name, f"the toolset of {here.model._meta.label} does not show {last!r}")
        end = _Compiler(here).own(last)
        if end.computed is not None or end.sensitive:
            return self._nowhere(name, f"{last!r} of {here.model._meta.label} is shown with its own row only")
        return self._prefixed(name, tuple(hops), end, null)

    def _prefixed(self, name: str, hops: tuple[Hop, ...], end: ExposedField, null: bool) -> ExposedField:
        prefix = hops[-1].path + LOOKUP_SEP
        return ExposedField(
            name=name,
            hops=hops,
            source=prefix + end.source,
            codec=end.codec,
            nullable=True if null or any(hop.many or hop.target.is_scoped for hop in hops) else end.nullable,
            is_relation=end.is_relation,
            target=end.target,
            label=None if end.label is None else prefix + end.label,
            many=end.many or any(hop.many for hop in hops),
            model_field=end.model_field,
        )

    def _nowhere(self, name: str, why: str) -> ExposedField | None:
        self.problems.append(f"{name!r} is left out: {why}")
        return None

    def own(self, name: str) -> ExposedField:
        """Compile a name without a path: a column, a relation, a method or a property.

        Raises:
            DeclarationError: the name is unknown.
        """
        toolset = self.toolset
        sensitive = name in toolset.sensitive_fields
        model_field = None if toolset.own_method(name) else field_of(toolset.model, name)

        if model_field is None:
            computed = computed_of(toolset, name)
            return ExposedField(name=name, computed=computed, sensitive=sensitive, nullable=True)

        if model_field.is_relation and name != "pk":
            return self._relation(name, model_field, sensitive)

        return ExposedField(
            name=name,
            source=model_field.attname if name == "pk" else name,
            codec=codec_of(model_field),
            nullable=model_field.null and name != "pk",
            model_field=model_field,
            sensitive=sensitive,
        )

    def _relation(self, name: str, relation: Any, sensitive: bool) -> ExposedField:
        other = relation.related_model
        target = self.toolset.beside(other)
        many = is_many(relation)

        # A foreign key to another unique column is followed to the primary key.
        forward = relation.concrete and not many and relation.target_field.primary_key
        label = None if target is None or target.label_path is None else f"{name}{LOOKUP_SEP}{target.label_path}"

        return ExposedField(
            name=name,
            source=relation.attname if forward else f"{name}{LOOKUP_SEP}pk",
            codec=codec_of(relation if forward else other._meta.pk),
            nullable=is_nullable(relation) or (target is not None and target.is_scoped),
            is_relation=True,
            target=target,
            label=label,
            many=many,
            model_field=relation,
            sensitive=sensitive,
        )


def field_of(model: type[models.Model], name: str) -> Any:
    """Return a field or relation of a model, or None if it cannot be shown."""
    if name == "pk":
        return model._meta.pk
    try:
        found: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    if found.name != name:
        return None  # an attname, such as "country_id" for "country"
    if found.is_relation and found.related_model is None:
        raise DeclarationError(f"{model._meta.label}.{name} is a generic relation without a fixed model; leave it out")
    return found


def relation_of(model: type[models.Model], name: str) -> Any:
    """Return a relation of a model, or None if the name does not denote a relation."""
    found = field_of(model, name)
    return found if found is not None and found.is_relation else None


def is_many(relation: Any) -> bool:
    """Return True if a relation may lead to several rows."""
    return bool(relation.many_to_many or relation.one_to_many)


def is_nullable(relation: Any) -> bool:
    """Return True if a relation may lead to no row."""
    return not relation.concrete or bool(relation.null)

"""Exposed fields: the names that a client may use, with their columns.

These names are the only access to columns. A client's name is matched against them as a whole and never split, so an
undeclared path is unknown. A declared path crosses a relation only under these conditions:

- The related model has a toolset on the same server.
- That toolset shows the field.
- That toolset allows the caller to view rows, and only its visible rows are included.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, Protocol

from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models.constants import LOOKUP_SEP

from mcp_django.orm.codecs import Codec, get_codec
from mcp_django.orm.codecs.codec import reject_comparison
from mcp_django.orm.declaration.computed_fields import ComputedField, compile_computed_field
from mcp_django.schema import DeclarationError, convert_failures
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.registry import Registry

COMPUTED_CODEC = Codec(kind="computed", schema={}, decode=reject_comparison, lookups={}, is_orderable=False)
"""Codec of a field that the database does not contain."""


class Purpose(StrEnum):
    """Use of a field by a client, as a noun for messages."""

    READ = "field"
    FILTER = "filter"
    ORDER = "field to order by"
    AGGREGATE = "field to group or sum by"


class RowDeclaration(Protocol):
    """Declaration of a model's rows, by a toolset or an inline, as other modules of `orm` read it."""

    registry: Registry
    is_generic: bool
    """True if its tools are parts of the generic tools."""

    @property
    def model(self) -> type[models.Model]:
        """The model of the rows."""

    @property
    def source(self) -> str:
        """Place of the declaration, for messages."""

    @property
    def list_filter(self) -> Sequence[str] | Literal["__all__"]:
        """Fields that filter rows."""

    @property
    def search_fields(self) -> Sequence[str]:
        """Fields that `search` compares."""

    @property
    def sensitive_fields(self) -> Sequence[str]:
        """Fields that are only shown."""

    @property
    def tools(self) -> Sequence[str]:
        """Names of the tools to serve."""

    @property
    def exposure(self) -> "Exposure":
        """Exposed fields."""

    @property
    def label_path(self) -> str | None:
        """Name of the column that labels a row, or None."""

    @property
    def is_scoped(self) -> bool:
        """True if some rows may be hidden from some callers."""

    @property
    def decides_by_row(self) -> bool:
        """True if the view permission of a row may differ from that of the model."""

    @property
    def has_row_uris(self) -> bool:
        """True if rows can be read by their URI."""

    def build_row_uri(self, pk: Any) -> str:
        """Return the URI of a row."""

    def field_names(self) -> tuple[str, ...]:
        """Return the names of the declared fields."""

    def has_field(self, name: str) -> bool:
        """Return True if rows show this field."""

    def find_own_method(self, name: str) -> Callable[..., Any] | None:
        """Return a method of the declaration itself, or None."""

    def find_toolset(self, model: Any) -> "RowDeclaration | None":
        """Return the declaration of a model on the same server, or None."""

    def can_view(self, ctx: Context, obj: Any = None) -> bool:
        """Return True if rows, or this row, may be shown in related rows."""

    def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
        """Return True if the caller may see rows, or this row."""

    def get_queryset(self, ctx: Context) -> "models.QuerySet[Any, Any]":
        """Return the rows that the caller may see."""

    def tool_name(self, verb: str) -> str:
        """Return the full name of a tool, as clients call it."""

    def get_tool(self, name: str) -> Tool:
        """Return a tool by name. Raises DeclarationError."""


@dataclass(frozen=True, slots=True, eq=False)
class RelationHop:
    """Relation that a path crosses."""

    path: str
    """Path from the toolset's model to this relation, such as "region__country"."""
    target: "RowDeclaration"
    """Toolset of the model on the other side."""
    is_to_many: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExposedField:
    """Field name that clients may use."""

    name: str
    hops: tuple[RelationHop, ...] = ()
    """Relations on the path, in order."""
    source: str = ""
    """ORM path of the value, such as "country__name"; empty if computed."""
    codec: Codec = COMPUTED_CODEC
    """Codec of the value."""
    is_nullable: bool = False
    is_relation: bool = False
    """True if the value is the primary key of another row."""
    target: "RowDeclaration | None" = None
    """Toolset of the related model, if the server has one."""
    label: str | None = None
    """ORM path of the label of the related row."""
    is_to_many: bool = False
    """True if the field has several values."""
    computed: ComputedField | None = None
    """Method or property that computes the value."""
    model_field: Any = None
    """Django's field at the end of the path; None if computed."""
    is_sensitive: bool = False
    """True if the field is only shown.

    Filters, orders and aggregates would allow guessing its values.
    """

    @property
    def is_caller_independent(self) -> bool:
        """Return True if the value is the same for all callers.

        It depends on the caller if rows on the path may be hidden.
        """
        return not any(hop.target.is_scoped for hop in self.hops) and not (
            self.is_relation and self.target is not None and self.target.is_scoped
        )

    @property
    def is_column(self) -> bool:
        """Return True if the field has one value that the database can read and order by."""
        return self.computed is None and not self.is_to_many


@dataclass(frozen=True, slots=True, eq=False)
class Exposure:
    """Exposed fields of a toolset, cached as `toolset.exposure`."""

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
    cache: dict[Any, Any] = field(default_factory=dict)
    """Cache of compiled read plans and forms, filled by other modules."""

    def get_fields(self, purpose: Purpose) -> Mapping[str, ExposedField]:
        """Return the fields for a purpose, by name."""
        if purpose is Purpose.READ:
            return {"pk": self.pk, **self.fields}
        return self.filters if purpose is Purpose.FILTER else self.ordering


def compile_exposure(toolset: "RowDeclaration") -> Exposure:
    """Compile a toolset's declaration together with its server's toolsets."""
    compiler = _ExposureCompiler(toolset)
    compiled = [compiler.compile_field(name) for name in toolset.field_names()]
    exposed_fields = {item.name: item for item in compiled if item is not None}
    pk = compiler.compile_own_field("pk")
    usable_fields = {**exposed_fields, "pk": pk}

    filters = {"pk": pk}
    filter_names = list(exposed_fields) if toolset.list_filter == "__all__" else toolset.list_filter
    for name in filter_names:
        item = compiler.compile_reachable(name, usable_fields)
        if item is not None and item.computed is None and not item.is_sensitive:
            filters[name] = item

    search = []
    for name in toolset.search_fields:
        lookup, path = parse_search_field(name)
        item = compiler.compile_reachable(path, usable_fields)
        if item is not None and item.computed is None and not item.is_sensitive:
            search.append((item, lookup))

    order = {
        name: item
        for name, item in {**usable_fields, **filters}.items()
        if item.is_column
        and not item.is_sensitive
        and not any(hop.is_to_many for hop in item.hops)
        and item.codec.is_orderable
    }
    return Exposure(exposed_fields, filters, order, tuple(search), pk, tuple(compiler.problems))


def parse_search_field(name: str) -> tuple[str, str]:
    """Split an entry of `search_fields` into lookup and path, as ModelAdmin does."""
    if name[:1] in _SEARCH_PREFIXES:
        return _SEARCH_PREFIXES[name[0]], name[1:]
    return "icontains", name


_SEARCH_PREFIXES = {"^": "istartswith", "=": "iexact"}


class _ExposureCompiler:
    """Compiler of one toolset's names to exposed fields."""

    def __init__(self, toolset: "RowDeclaration") -> None:
        self.toolset = toolset
        self.problems: list[str] = []

    def compile_reachable(self, name: str, known: Mapping[str, ExposedField]) -> ExposedField | None:
        """Return a shown field, or a path through a shown relation."""
        if name in known:
            return known[name]
        first, crosses, _ = name.partition(LOOKUP_SEP)
        if not crosses or first not in known or not known[first].is_relation:
            self.problems.append(f"{name!r} is not shown: add it, or the relation it begins with, to fields")
            return None
        return self.compile_field(name)

    def compile_field(self, name: str) -> ExposedField | None:
        """Compile a declared name, or record a problem if its path is invalid."""
        if LOOKUP_SEP not in name or self.toolset.find_own_method(name) or hasattr(self.toolset.model, name):
            return self.compile_own_field(name)

        hops: list[RelationHop] = []
        current, can_be_null, *segments = self.toolset, False, *name.split(LOOKUP_SEP)
        for number, segment in enumerate(segments[:-1], start=1):
            relation = find_relation(current.model, segment)
            if relation is None:
                return self._report_problem(name, f"{segment!r} is not a relation of {current.model._meta.label}")
            if number > 1 and not current.has_field(segment):
                return self._report_problem(
                    name, f"the toolset of {current.model._meta.label} does not show {segment!r}"
                )
            target = current.find_toolset(relation.related_model)
            if target is None:
                label = relation.related_model._meta.label
                return self._report_problem(name, f"{label} has no toolset on this server")
            can_be_null = can_be_null or is_nullable(relation)
            hops.append(RelationHop(LOOKUP_SEP.join(segments[:number]), target, is_to_many(relation)))
            current = target

        last = segments[-1]
        if not current.has_field(last) and last != "pk":
            return self._report_problem(name, f"the toolset of {current.model._meta.label} does not show {last!r}")
        end = _ExposureCompiler(current).compile_own_field(last)
        if end.computed is not None or end.is_sensitive:
            return self._report_problem(name, f"{last!r} of {current.model._meta.label} is shown with its own row only")

        prefix = hops[-1].path + LOOKUP_SEP
        crosses_many = any(hop.is_to_many for hop in hops)
        return replace(
            end,
            name=name,
            hops=tuple(hops),
            source=prefix + end.source,
            is_nullable=can_be_null or crosses_many or any(hop.target.is_scoped for hop in hops) or end.is_nullable,
            label=None if end.label is None else prefix + end.label,
            is_to_many=end.is_to_many or crosses_many,
        )

    def _report_problem(self, name: str, why: str) -> ExposedField | None:
        self.problems.append(f"{name!r} is left out: {why}")
        return None

    def compile_own_field(self, name: str) -> ExposedField:
        """Compile a name without a path: a column, a relation, a method or a property.

        Raises:
            DeclarationError: the name is unknown, or its column or property fails.
        """
        with convert_failures(f"{self.toolset.source}: the field {name!r}"):
            return self._compile_own_field(name)

    def _compile_own_field(self, name: str) -> ExposedField:
        toolset = self.toolset
        sensitive = name in toolset.sensitive_fields
        model_field = None if toolset.find_own_method(name) else find_field(toolset.model, name)

        if model_field is None:
            computed = compile_computed_field(toolset.source, toolset.model, name, toolset.find_own_method(name))
            return ExposedField(name=name, computed=computed, is_sensitive=sensitive, is_nullable=True)

        if model_field.is_relation and name != "pk":
            return self._compile_relation(name, model_field, sensitive)

        return ExposedField(
            name=name,
            source=model_field.attname if name == "pk" else name,
            codec=get_codec(model_field),
            is_nullable=model_field.null and name != "pk",
            model_field=model_field,
            is_sensitive=sensitive,
        )

    def _compile_relation(self, name: str, relation: Any, sensitive: bool) -> ExposedField:
        other = relation.related_model
        target = self.toolset.find_toolset(other)
        many = is_to_many(relation)

        # A foreign key to another unique column is followed to the primary key.
        forward = relation.concrete and not many and relation.target_field.primary_key
        label = None if target is None or target.label_path is None else f"{name}{LOOKUP_SEP}{target.label_path}"

        return ExposedField(
            name=name,
            source=relation.attname if forward else f"{name}{LOOKUP_SEP}pk",
            codec=get_codec(relation if forward else other._meta.pk),
            is_nullable=is_nullable(relation) or (target is not None and target.is_scoped),
            is_relation=True,
            target=target,
            label=label,
            is_to_many=many,
            model_field=relation,
            is_sensitive=sensitive,
        )


def find_field(model: type[models.Model], name: str) -> Any:
    """Return a field or relation of a model, or None if it cannot be shown."""
    if name == "pk":
        return model._meta.pk
    try:
        field: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    if field.name != name:
        return None  # an attname, such as "country_id" for "country"
    if field.is_relation and field.related_model is None:
        raise DeclarationError(f"{model._meta.label}.{name} is a generic relation without a fixed model; leave it out")
    return field


def find_last_field(model: Any, path: str) -> Any:
    """Return Django's field at the end of a path, or None."""
    field = None
    for segment in path.split(LOOKUP_SEP):
        field = None if model is None else find_field(model, segment)
        if field is None:
            return None
        model = field.related_model
    return field


_TREE_COLUMNS = {
    "treebeard.mp_tree.MP_Node": ("path", "depth", "numchild"),
    "treebeard.ns_tree.NS_Node": ("lft", "rgt", "tree_id", "depth"),
}
"""Columns that django-treebeard writes, by base class. It is optional, so the classes are named."""


def get_tree_columns(model: type[models.Model]) -> frozenset[str]:
    """Return the names of the columns that place the rows in a tree of treebeard; empty for other models.

    Its methods (`add_root`, `add_child`, `move`) keep them consistent. Rows that are written by these columns alone lie
    beside the tree.
    """
    bases = {f"{cls.__module__}.{cls.__qualname__}" for cls in model.__mro__}
    return frozenset(name for base, names in _TREE_COLUMNS.items() if base in bases for name in names)


def find_relation(model: type[models.Model], name: str) -> Any:
    """Return a relation of a model, or None if the name does not denote a relation."""
    field = find_field(model, name)
    return field if field is not None and field.is_relation else None


def is_to_many(relation: Any) -> bool:
    """Return True if a relation may lead to several rows."""
    return bool(relation.many_to_many or relation.one_to_many)


def is_nullable(relation: Any) -> bool:
    """Return True if a relation may lead to no row."""
    return not relation.concrete or bool(relation.null)

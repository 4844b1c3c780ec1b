"""System checks of model toolsets: fields, permissions, databases and ordering.

E004 reports declarations that are not served (`checks.declarations`). These checks consider the other toolsets of the
server, because paths lead to their fields.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error, Info, Warning
from django.db.models import F
from django.db.models.constants import LOOKUP_SEP

from mcp_django import conf
from mcp_django.checks.installation import register_check
from mcp_django.conf.project import databases
from mcp_django.orm import ModelToolset
from mcp_django.orm.declaration.exposed_fields import find_relation, is_to_many
from mcp_django.orm.declaration.required_columns import find_unfilled_columns
from mcp_django.orm.list_size import advise_generic_style, measure_registered_tools
from mcp_django.schema import DeclarationError
from mcp_django.server.injection.handler import describe_source
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.toolset import find_misspelt_attributes


@register_check(reads_settings=False)
def check_toolsets() -> Iterator[CheckMessage]:
    """Check that paths, relations, databases and permissions of toolsets exist."""
    for toolset in _iter_toolsets():
        yield from _check_toolset(toolset)


@register_check(deploy=True, reads_settings=False)
def check_orders() -> Iterator[CheckMessage]:
    """Check that lists have an indexed order.

    Each page begins with a search for its position in the order. Without an index the search reads the whole table.
    """
    for toolset in _iter_toolsets():
        if "list" in toolset.tools and (name := _find_unindexed_ordering(toolset)) is not None:
            yield Info(
                f"{toolset.source}: lists are ordered by {name!r}, which no index begins with, so each page sorts "
                "all rows of the table.",
                hint="Add an index on the field (db_index=True, or Meta.indexes), or change the ordering of the "
                "toolset. If the table is small, silence this check.",
                id="mcp_django.I003",
            )


@register_check()
def check_list_sizes() -> Iterator[CheckMessage]:
    """Check that the tools of models do not fill the context of a language model."""
    for alias in conf.get_settings().servers:
        declared = registry.REGISTRIES.get(alias)
        size = None if declared is None else measure_registered_tools(declared)
        if size is not None and size.is_reducible:
            yield Info(
                f'The server "{alias}" lists {size}; {size.model_tools:,} of the tools are of single models.',
                hint=f"{advise_generic_style(alias)} mcp_inspect --sizes lists the size of each tool.",
                id="mcp_django.I004",
            )


@register_check(reads_settings=False)
def check_attributes() -> Iterator[CheckMessage]:
    """Check that no attribute of a toolset class is a misspelt option or hook."""
    toolsets = [toolset for declared in registry.REGISTRIES.values() for toolset in declared.toolsets]
    inlines = [inline for toolset in _iter_toolsets() for inline in toolset.inline_toolsets]
    for toolset in (*toolsets, *inlines):
        custom_names = _get_custom_hooks(toolset) if isinstance(toolset, ModelToolset) else ()
        for name, known in find_misspelt_attributes(type(toolset)):
            if name not in custom_names:
                yield Warning(
                    f"{describe_source(type(toolset))}: unknown attribute {name!r}, which has no effect.",
                    hint=f"Did you mean {known!r}? Otherwise rename it, or begin its name with an underscore.",
                    id="mcp_django.W012",
                )


def _get_custom_hooks(toolset: ModelToolset) -> set[str]:
    """Return the names of computed fields, of actions, and of the permission hooks that actions require."""
    hooks = {f"has_{name}_permission" for name in toolset.action_permissions}
    return {*hooks, *toolset.action_titles, *toolset.field_names()}


def _iter_toolsets() -> Iterator[ModelToolset]:
    for declared in registry.REGISTRIES.values():
        yield from (toolset for toolset in declared.toolsets if isinstance(toolset, ModelToolset))


def _check_toolset(toolset: ModelToolset) -> Iterator[CheckMessage]:
    left_out = [*toolset.exposure.problems]
    for inline in toolset.inline_toolsets:
        left_out += [f"{problem} (in {inline.source})" for problem in inline.exposure.problems]
    for problem in left_out:
        yield Warning(
            f"{toolset.source}: {problem}.",
            hint="Register the related model on the same server with the last field of the path, or remove the path.",
            id="mcp_django.W009",
        )

    with contextlib.suppress(DeclarationError):  # E004 reports a form that cannot be built
        yield from _check_new_rows(toolset)
    yield from _check_database_and_relations(toolset)
    yield from _check_permissions(toolset)


def _check_new_rows(toolset: ModelToolset) -> Iterator[CheckMessage]:
    """Yield a warning for each required column of new rows that clients cannot write.

    Inlines add rows with the writing tools of their parent.
    """
    inlines = toolset.inline_toolsets if {"create", "update"} & {*toolset.tools} else ()
    for owner in (*([toolset] if "create" in toolset.tools else []), *inlines):
        if names := find_unfilled_columns(owner):
            columns = f"column {names[0]!r}" if len(names) == 1 else f"columns {', '.join(map(repr, names))}"
            yield Warning(
                f"{owner.source}: new rows lack the required {columns}, so the database refuses them.",
                hint="Name it in fields so that clients can write it, set it in save_model, or give the column a "
                "default.",
                id="mcp_django.W014",
            )


def _check_database_and_relations(toolset: ModelToolset) -> Iterator[CheckMessage]:
    """Yield errors that would make every call fail."""
    known = databases()
    if toolset.using is not None and toolset.using not in known:
        yield Error(
            f"{toolset.source}: using names the database {toolset.using!r}, which is not in DATABASES.",
            hint=f"Known databases: {', '.join(known)}.",
            id="mcp_django.E009",
        )

    related = toolset.list_select_related
    for path in () if isinstance(related, bool) else related:
        model: Any = toolset.model
        for segment in path.split(LOOKUP_SEP):
            relation = find_relation(model, segment)
            if relation is None or is_to_many(relation):
                yield Error(
                    f"{toolset.source}: list_select_related names {path!r}, but {segment!r} does not lead from "
                    f"{model._meta.label} to a single row.",
                    hint="Use foreign keys and one-to-one relations, and paths of them.",
                    id="mcp_django.E009",
                )
                break
            model = relation.related_model


_ACTION_BY_TOOL = {"create": "add", "update": "change", "delete": "delete"}


def _check_permissions(toolset: ModelToolset) -> Iterator[CheckMessage]:
    """Yield a warning for each permission that Django does not create.

    Only superusers have it.
    """
    options = toolset.model._meta
    existing = {*options.default_permissions, *(codename.partition("_")[0] for codename, _ in options.permissions)}
    for action in dict.fromkeys(_ACTION_BY_TOOL.get(verb, "view") for verb in toolset.tools):
        if action not in existing and not toolset.is_overridden(f"has_{action}_permission"):
            yield Warning(
                f"{toolset.source}: requires the permission {toolset.permission_name(action)!r}, which Django does not "
                f"create: {action!r} is not in default_permissions of {options.label}. Only superusers have it.",
                hint=f"Add {action!r} to Meta.default_permissions, or override has_{action}_permission.",
                id="mcp_django.W010",
            )


def _find_unindexed_ordering(toolset: ModelToolset) -> str | None:
    """Return the first field of the default order unless it is indexed, else None."""
    if toolset.is_overridden("get_ordering"):
        return None
    options = toolset.model._meta
    names = [name for name in (toolset.ordering or options.ordering or ()) if isinstance(name, str)]
    if not names or names[0] == "?":
        return None
    name = names[0].removeprefix("-")
    item = toolset.exposure.ordering.get(name)
    if item is None or item.source == toolset.exposure.pk.source:
        return None
    return None if LOOKUP_SEP not in item.source and item.source in set(_iter_indexed_columns(options)) else name


def _iter_indexed_columns(options: Any) -> Iterator[str]:
    """Yield the columns with which an index of the table begins, by attribute name."""
    for field in options.concrete_fields:
        if field.primary_key or field.unique or field.db_index:
            yield from (field.name, field.attname)
    for index in (*options.indexes, *options.total_unique_constraints):
        first = next(iter(index.fields), None)
        if first is None:
            first = next((_get_column(expression) for expression in index.expressions), "")
        yield first.removeprefix("-")
    yield from (names[0] for names in options.unique_together if names)


def _get_column(expression: Any) -> str:
    """Return the column of an index expression, or "".

    The expression is `F("created")` or an ordering of it.
    """
    inner = getattr(expression, "expression", expression)
    return str(getattr(inner, "name", "")) if isinstance(inner, F) else ""

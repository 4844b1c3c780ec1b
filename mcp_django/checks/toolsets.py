"""Do toolsets of models show what they declare, to whom, from a database that there is?

What is wrong with a toolset by itself is found when it is registered, and reported as E004. Here it is seen beside the
others of its server, whose fields its paths lead to.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Info, Warning, register
from django.db.models import F
from django.db.models.constants import LOOKUP_SEP

from mcp_django.conf.project import databases
from mcp_django.orm import ModelToolset
from mcp_django.orm.fields.exposed_fields import is_many, relation_of
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives import registry


@register
def check_toolsets(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """What is declared must be there: paths, relations, a database, permissions that somebody can hold."""
    return [message for toolset in _toolsets() for message in _problems(toolset)]


@register(deploy=True)
def check_orders(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Each page of a list begins by finding its place in the order, which without an index takes the whole table."""
    return [
        Info(
            f"{toolset.source}: lists are ordered by {name!r}, which no index begins with, so that each page sorts "
            "all rows of the table.",
            hint="Give the field an index (db_index=True, or Meta.indexes), or another ordering to the toolset. "
            "Silence it where the table is small.",
            id="mcp_django.I003",
        )
        for toolset in _toolsets()
        if "list" in toolset.tools and (name := _unindexed(toolset)) is not None
    ]


def _toolsets() -> Iterator[ModelToolset]:
    for declared in registry.REGISTRIES.values():
        yield from (toolset for toolset in declared.toolsets if isinstance(toolset, ModelToolset))


def _problems(toolset: ModelToolset) -> Iterator[CheckMessage]:
    try:
        left_out = [*toolset.exposure.problems]
        for inline in toolset.inline_toolsets:
            left_out += [f"{problem} (in {inline.source})" for problem in inline.exposure.problems]
        for verb in toolset.tools:
            _ = toolset.verb(verb).wire
    except DeclarationError as wrong:
        text = str(wrong) if toolset.source in str(wrong) else f"{toolset.source}: {wrong}"
        yield Error(text, hint="Mend the declaration: it is not served.", id="mcp_django.E004")
        return
    for problem in left_out:
        yield Warning(
            f"{toolset.source}: {problem}.",
            hint="Register the related model on the same server with the fields that the path ends in, or take the "
            "path out.",
            id="mcp_django.W009",
        )
    yield from _unreadable(toolset)
    yield from _unpermitted(toolset)


def _unreadable(toolset: ModelToolset) -> Iterator[CheckMessage]:
    """What every call would fail at."""
    known = databases()
    if toolset.using is not None and toolset.using not in known:
        yield Error(
            f"{toolset.source}: using names the database {toolset.using!r}, which DATABASES does not have.",
            hint=f"It has: {', '.join(known)}.",
            id="mcp_django.E009",
        )
    related = toolset.list_select_related
    for path in () if isinstance(related, bool) else related:
        model: Any = toolset.model
        for segment in path.split(LOOKUP_SEP):
            relation = relation_of(model, segment)
            if relation is None or is_many(relation):
                yield Error(
                    f"{toolset.source}: list_select_related names {path!r}, but {segment!r} leads from "
                    f"{model._meta.label} to no single row.",
                    hint="It takes foreign keys and one-to-one relations, and paths of them.",
                    id="mcp_django.E009",
                )
                break
            model = relation.related_model


_VERBS = {"create": "add", "update": "change", "delete": "delete"}


def _unpermitted(toolset: ModelToolset) -> Iterator[CheckMessage]:
    """Permissions that Django never makes are held by superusers alone."""
    options = toolset.model._meta
    made = {*options.default_permissions, *(codename.partition("_")[0] for codename, _ in options.permissions)}
    for action in dict.fromkeys(_VERBS.get(verb, "view") for verb in toolset.tools):
        if action not in made and not toolset.overrides(f"has_{action}_permission"):
            yield Warning(
                f"{toolset.source}: it takes the permission {toolset.permission_name(action)!r}, which Django does not "
                f"make: {action!r} is not among the default_permissions of {options.label}. Superusers alone have it.",
                hint=f"Add {action!r} to Meta.default_permissions, or override has_{action}_permission.",
                id="mcp_django.W010",
            )


def _unindexed(toolset: ModelToolset) -> str | None:
    """The first name of the order of lists that ask for none, unless an index begins with it."""
    if toolset.overrides("get_ordering"):
        return None
    options = toolset.model._meta
    names = [name for name in (toolset.ordering or options.ordering or ()) if isinstance(name, str)]
    if not names or names[0] == "?":
        return None
    name = names[0].removeprefix("-")
    try:
        item = toolset.exposure.ordering.get(name)
    except DeclarationError:
        return None  # reported by itself
    if item is None or item.source == toolset.exposure.pk.source:
        return None
    return None if LOOKUP_SEP not in item.source and item.source in set(_indexed(options)) else name


def _indexed(options: Any) -> Iterator[str]:
    """The columns that an index of the table begins with, by attribute name."""
    for field in options.concrete_fields:
        if field.primary_key or field.unique or field.db_index:
            yield from (field.name, field.attname)
    for index in (*options.indexes, *options.total_unique_constraints):
        first = next(iter(index.fields), None)
        if first is None:
            first = next((_column(expression) for expression in index.expressions), "")
        yield first.removeprefix("-")
    yield from (names[0] for names in options.unique_together if names)


def _column(expression: Any) -> str:
    """The column that an expression of an index is, if it is one: `F("created")`, or that in an order."""
    inner = getattr(expression, "expression", expression)
    return str(getattr(inner, "name", "")) if isinstance(inner, F) else ""

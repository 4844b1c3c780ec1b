"""Rows as resources: one URI for each row, and one URI template for pages.

    shop.order://7
    shop.order://{?customer,search,cursor}

Reading a row calls `get`, reading a page calls `list`, with their permissions, guards and timeouts. A resource
therefore shows the same data to the same callers as the tool. Foreign and hidden rows are treated like missing rows.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from django.db import models
from django.db.models.constants import LOOKUP_SEP

from mcp_django.orm.fields.codecs import Codec
from mcp_django.orm.fields.exposed_fields import field_of
from mcp_django.protocol.errors import InsufficientScope, InvalidParams, NotFound
from mcp_django.protocol.uri import MAX_LENGTH, UriTemplate, Value
from mcp_django.schema import ArgumentError
from mcp_django.server.context.context import Context
from mcp_django.server.execution.invoke import pass_on
from mcp_django.server.injection.handler import Handler
from mcp_django.server.primitives.base import Completer, Completion, Primitive, ResourceTemplate, Tool

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset

JSON = "application/json"
OFFERED = 100
"""Maximum number of values of one completion (server/utilities/completion)."""
_ENCODED = re.compile(r"(?:[A-Za-z0-9\-._~:@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_WORDS = {"true": True, "false": False}
_OWN = ("search", "cursor")
Values = Callable[[str, Context], Awaitable[Completion | Sequence[str]]]
"""Function from typed text to completion values."""
Declaration = tuple[Callable[[], Primitive | Completer], str]


class RowUri(UriTemplate):
    """URI template of a row, such as `shop.order://{pk}`.

    Unlike other variables, a primary key may contain any character except NUL. It is not a path, so a slash in it is
    harmless.
    """

    __slots__ = ("_start",)

    def __init__(self, scheme: str) -> None:
        super().__init__(f"{scheme}://{{pk}}")
        self._start = f"{scheme}://"

    def match(self, uri: str) -> dict[str, Value] | None:
        """See UriTemplate."""
        if not uri.startswith(self._start) or len(uri) > MAX_LENGTH:
            return None
        rest = uri[len(self._start) :]
        if not _ENCODED.fullmatch(rest):
            return None
        try:
            pk = unquote_to_bytes(rest).decode()
        except UnicodeDecodeError:
            return None
        return None if "\0" in pk else {"pk": pk}


def resources_of(toolset: "ModelToolset") -> list[Declaration]:
    """Return the URI templates of a toolset and their completions, with their sources."""
    declared: list[Declaration] = []
    if not toolset.resources:
        return declared

    if "get" in toolset.tools:
        declared.append((partial(_row, toolset), f"{toolset.source}, its rows"))
        if "list" in toolset.tools:
            declared.append((partial(_completer, _row_uri(toolset).text, "pk", partial(keys, toolset)), toolset.source))

    if "list" in toolset.tools:
        declared.append((partial(_page, toolset), f"{toolset.source}, their pages"))
        text = _page_uri(toolset)
        for name in _variables(toolset):
            complete = _values(toolset, name)
            if complete is not None:
                declared.append((partial(_completer, text, name, complete), f"{toolset.source}, {name}"))

    return declared


def _row_uri(toolset: "ModelToolset") -> RowUri:
    return RowUri(toolset.uri_scheme)


def _row(toolset: "ModelToolset") -> ResourceTemplate:
    get = toolset.verb("get")
    meta = toolset.model._meta

    async def read(pk: str, ctx: Context) -> Any:
        value = json_of(toolset.exposure.pk.codec, pk)
        if value is None:
            return None
        row = await _passed(ctx, get, {"pk": value})
        # Each row has exactly one URI: subscribers are notified only under that URI.
        return row if row is not None and str(row["pk"]) == pk else None

    return ResourceTemplate(
        name=str(meta.model_name),
        title=str(meta.verbose_name).capitalize(),
        description=f"One of the {meta.verbose_name_plural}, by primary key: what {get.name} returns.",
        permission=get.permission,
        scopes=get.scopes,
        stands_for=get,
        tags=get.tags,
        metadata=get.metadata,
        timeout=get.timeout,
        handler=Handler(read, {"ctx": Context}, atomic=()),
        source=toolset.source,
        template=_row_uri(toolset),
        convert=dict,
        mime_type=JSON,
        probe=True,
    )


def _page_uri(toolset: "ModelToolset") -> str:
    return f"{toolset.uri_scheme}://{{?{','.join((*_variables(toolset), *_OWN))}}}"


def _variables(toolset: "ModelToolset") -> tuple[str, ...]:
    """Return the variables that filter pages.

    They do not depend on toolsets that are registered later.
    """
    names = toolset.field_names() if toolset.list_filter == "__all__" else toolset.list_filter
    return tuple(name for name in names if name not in _OWN and name not in toolset.sensitive_fields)


def _page(toolset: "ModelToolset") -> ResourceTemplate:
    rows = toolset.verb("list")
    meta = toolset.model._meta
    variables = _variables(toolset)

    async def read(ctx: Context, **values: str) -> Any:
        filters = {name: values[name] for name in variables if name in values}
        for name, text in filters.items():
            item = toolset.exposure.filters.get(name)
            filters[name] = json_of(None if item is None else item.codec, text)
            if filters[name] is None:
                return None
        given = {name: values[name] for name in _OWN if name in values}
        return await _passed(ctx, rows, {**given, **({"filters": filters} if filters else {})})

    return ResourceTemplate(
        name=str(meta.verbose_name_plural).replace(" ", "_"),
        title=str(meta.verbose_name_plural).capitalize(),
        description=f"A page of {meta.verbose_name_plural}: what {rows.name} returns.",
        permission=rows.permission,
        scopes=rows.scopes,
        stands_for=rows,
        tags=rows.tags,
        metadata=rows.metadata,
        timeout=rows.timeout,
        handler=Handler(read, {"ctx": Context}, atomic=()),
        source=toolset.source,
        template=UriTemplate(_page_uri(toolset)),
        convert=dict,
        mime_type=JSON,
        probe=True,
    )


def _completer(target: str, argument: str, values: Values) -> Completer:
    async def complete(value: str, ctx: Context) -> Completion | Sequence[str]:
        return await values(value, ctx)

    return Completer(
        target=target, argument=argument, handler=Handler(complete, {"ctx": Context}, atomic=()), source=target
    )


def _values(toolset: "ModelToolset", name: str) -> Values | None:
    """Return the completion source of a filter, or None if it has none.

    Sources are related rows, choices, and the values true and false.
    """
    field = end_of(toolset.model, name)
    if field is None:
        return None
    if field.is_relation:
        return partial(_related, toolset, field.related_model)
    choices = [str(value) for value, _ in getattr(field, "flatchoices", None) or () if value not in (None, "")]
    if isinstance(field, models.BooleanField):
        choices = list(_WORDS)
    return partial(_chosen, choices) if choices else None


async def _chosen(choices: Sequence[str], typed: str, ctx: Context) -> Sequence[str]:
    return [choice for choice in choices if choice.lower().startswith(typed.strip().lower())]


async def _related(toolset: "ModelToolset", model: Any, typed: str, ctx: Context) -> Completion | Sequence[str]:
    target = toolset.beside(model)
    return () if target is None or "list" not in target.tools else await keys(target, typed, ctx)


async def keys(toolset: "ModelToolset", typed: str, ctx: Context) -> Completion:
    """Return primary keys of visible rows that match typed text.

    Matches are keys with this prefix, and rows that a search returns.
    """
    found: dict[str, None] = {}
    for arguments in _asked(toolset, typed):
        if len(found) < OFFERED:
            found |= dict.fromkeys(await _listed(toolset, arguments, ctx))
    return Completion(list(found)[:OFFERED], has_more=len(found) > OFFERED)


def _asked(toolset: "ModelToolset", typed: str) -> list[dict[str, Any]]:
    """Return the arguments of at most two `list` calls that find matching keys."""
    text = typed.strip()[:100]
    if not text:
        return [{}]

    asked: list[dict[str, Any]] = []
    codec = toolset.exposure.pk.codec
    if codec is not None and "istartswith" in codec.lookups:
        asked.append({"filters": {"pk__istartswith": text}})
    elif (value := json_of(codec, text)) is not None and codec is not None:
        try:
            codec.decode(value)
        except ValueError:
            pass
        else:
            asked.append({"filters": {"pk": value}})
    if toolset.exposure.search or toolset.overrides("get_search_results"):
        asked.append({"search": text})
    return asked


async def _listed(toolset: "ModelToolset", arguments: dict[str, Any], ctx: Context) -> list[str]:
    limit = min(OFFERED, toolset.max_limit)
    page = await _passed(ctx, toolset.verb("list"), {"fields": [], "limit": limit, **arguments})
    return [] if page is None else [str(row["pk"]) for row in page["items"]]


async def _passed(ctx: Context, tool: Tool, arguments: dict[str, Any]) -> Any:
    """Return the tool's result, or None if the rows or the tool are unavailable."""
    try:
        return await pass_on(ctx, tool, arguments)
    except (NotFound, ArgumentError, InvalidParams, InsufficientScope):
        return None


def json_of(codec: Codec | None, text: str) -> Any:
    """Convert text from a URI to JSON for a column, or None if it is invalid."""
    match None if codec is None else codec.kind:
        case "integer":
            return int(text) if _INTEGER.fullmatch(text) else None
        case "boolean":
            return _WORDS.get(text)
        case "number":
            try:
                return float(text)
            except ValueError:
                return None
        case None:
            return None
    return text


def end_of(model: Any, path: str) -> Any:
    """Return Django's field at the end of a path, or None."""
    field = None
    for segment in path.split(LOOKUP_SEP):
        field = None if model is None else field_of(model, segment)
        if field is None:
            return None
        model = field.related_model
    return field

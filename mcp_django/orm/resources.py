"""Rows as resources: `shop.order://7` for one, `shop.order://{?customer,search,cursor}` for a page of them.

Reading one is `get` and reading a page is `list`, called with all that stands around them: so a resource shows what the
tool shows, to whom the tool shows it, and what is foreign or hidden is as unknown as what is not there.
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
"""Values of one completion (server/utilities/completion)."""
_ENCODED = re.compile(r"(?:[A-Za-z0-9\-._~:@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_WORDS = {"true": True, "false": False}
_OWN = ("search", "cursor")
Values = Callable[[str, Context], Awaitable[Completion | Sequence[str]]]
"""What was typed, to the values that may be meant."""
Declaration = tuple[Callable[[], Primitive | Completer], str]


class RowUri(UriTemplate):
    """`shop.order://{pk}`. Unlike other variables a primary key may hold any character but NUL: it is no path, so a
    slash in it leads nowhere.
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
    """The templates of a toolset and the completions of their variables, ready to be built, with their sources."""
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
        # One row, one URI: subscribers are told of no other.
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
    """What pages may be filtered by. The names are known before any other toolset is."""
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
    """What completes a filter: rows that a relation points at, choices, true and false; None where nothing does."""
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
    """Primary keys of rows that what was typed may mean: those that begin with it, and those that a search finds. Rows
    that the caller cannot list are not among them.
    """
    found: dict[str, None] = {}
    for arguments in _asked(toolset, typed):
        if len(found) < OFFERED:
            found |= dict.fromkeys(await _listed(toolset, arguments, ctx))
    return Completion(list(found)[:OFFERED], has_more=len(found) > OFFERED)


def _asked(toolset: "ModelToolset", typed: str) -> list[dict[str, Any]]:
    """What `list` is asked for: at most twice."""
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
    """What the tool returns; None where it is as if there were nothing, or no such tool."""
    try:
        return await pass_on(ctx, tool, arguments)
    except (NotFound, ArgumentError, InvalidParams, InsufficientScope):
        return None


def json_of(codec: Codec | None, text: str) -> Any:
    """Text out of a URI as JSON for a column; None when it cannot be such a value."""
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
    """Django's field at the end of a path; None where there is none."""
    field = None
    for segment in path.split(LOOKUP_SEP):
        field = None if model is None else field_of(model, segment)
        if field is None:
            return None
        model = field.related_model
    return field

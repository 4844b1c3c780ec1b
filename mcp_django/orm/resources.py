"""Rows as resources: one URI for each row, and one URI template for pages.

    shop.order://7
    shop.order://{?customer,search,cursor}

Reading a row calls `get`, reading a page calls `list`, with their permissions, guards and timeouts. A resource
therefore shows the same data to the same callers as the tool. Foreign and hidden rows are treated like missing rows.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

from django.db import models
from django.db.models.constants import LOOKUP_SEP

from mcp_django.orm.codecs import Codec
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.exposed_fields import find_field, find_last_field
from mcp_django.orm.queries.visibility import UnknownFieldError
from mcp_django.protocol.errors import InsufficientScope, InvalidParams, NotFound
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.uri import MAX_URI_LENGTH, UriTemplate, Value
from mcp_django.schema import ArgumentError
from mcp_django.server.context.context import Context
from mcp_django.server.execution.invoke import delegate_to_tool
from mcp_django.server.injection.handler import Handler
from mcp_django.server.primitives.base import Completer, Completion, Primitive, ResourceTemplate, Tool

JSON_MEDIA_TYPE = "application/json"
MAX_COMPLETIONS = 100
"""Maximum number of values of one completion (server/utilities/completion)."""
_ENCODED_KEY = re.compile(r"(?:[A-Za-z0-9\-._~:@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_BOOLEANS = {"true": True, "false": False}
_RESERVED_VARIABLES = ("search", "cursor")
CompletionSource = Callable[[str, Context], Awaitable[Completion | Sequence[str]]]
"""Function from typed text to completion values."""
Declaration = tuple[Callable[[], Primitive | Completer], str]


class RowUri(UriTemplate):
    """URI template of a row, such as `shop.order://{pk}`.

    Unlike other variables, a primary key may contain any character except NUL. It is not a path, so a slash in it is
    harmless.
    """

    __slots__ = ("_scheme", "_start")

    def __init__(self, scheme: str) -> None:
        super().__init__(f"{scheme}://{{pk}}")
        self._scheme = scheme
        self._start = f"{scheme}://"

    def prepend(self, prefix: str) -> "RowUri":
        """See UriTemplate."""
        return RowUri(f"{prefix}{self._scheme}")

    def match(self, uri: str) -> dict[str, Value] | None:
        """See UriTemplate."""
        if not uri.startswith(self._start) or len(uri) > MAX_URI_LENGTH:
            return None
        rest = uri[len(self._start) :]
        if not _ENCODED_KEY.fullmatch(rest):
            return None
        try:
            pk = unquote_to_bytes(rest).decode()
        except UnicodeDecodeError:
            return None
        return None if "\0" in pk else {"pk": pk}


class PageUri(UriTemplate):
    """URI template of pages, such as `shop.order://{?customer,search,cursor}`.

    It also matches variables that its text does not name: paths into models that a caller may not view.
    """

    __slots__ = ("_scheme", "_unnamed")

    def __init__(self, scheme: str, variables: Sequence[str], unnamed: Sequence[str]) -> None:
        super().__init__(f"{scheme}://{{?{','.join(variables)}}}")
        self._scheme = scheme
        self._unnamed = unnamed
        self._query = (*variables, *unnamed)

    def prepend(self, prefix: str) -> "PageUri":
        """See UriTemplate."""
        return PageUri(f"{prefix}{self._scheme}", self.variables, self._unnamed)


def build_declarations(toolset: BaseModelToolset) -> list[Declaration]:
    """Return the URI templates of a toolset and their completions, with their sources."""
    declarations: list[Declaration] = []
    if not toolset.resources:
        return declarations

    if "get" in toolset.tools:
        declarations.append((partial(_build_row_template, toolset), f"{toolset.source}, its rows"))
        if "list" in toolset.tools:
            declarations.append(
                (
                    partial(_build_completer, RowUri(toolset.uri_scheme).text, "pk", partial(complete_keys, toolset)),
                    toolset.source,
                )
            )

    if "list" in toolset.tools:
        declarations.append((partial(_build_page_template, toolset), f"{toolset.source}, their pages"))
        template = _build_page_uri(toolset)
        for name in template.variables:
            complete = None if name in _RESERVED_VARIABLES else _find_completion_source(toolset, name)
            if complete is not None:
                declarations.append(
                    (partial(_build_completer, template.text, name, complete), f"{toolset.source}, {name}")
                )

    return declarations


def _build_row_template(toolset: BaseModelToolset) -> ResourceTemplate:
    get, meta = toolset.get_tool("get"), toolset.model._meta

    async def read(pk: str, ctx: Context) -> Any:
        value = parse_uri_value(toolset.exposure.pk.codec, pk)
        if value is None:
            return None
        row = await _call_tool(ctx, get, {"pk": value})
        # Each row has exactly one URI: subscribers are notified only under that URI.
        return row if row is not None and str(row["pk"]) == pk else None

    text = f"One of the {meta.verbose_name_plural}, by primary key: what {get.name} returns."
    return _build_template(
        toolset,
        get,
        read,
        RowUri(toolset.uri_scheme),
        name=str(meta.model_name),
        title=meta.verbose_name,
        description=text,
    )


def _build_template(
    toolset: BaseModelToolset,
    tool: Tool,
    read: Callable[..., Any],
    template: UriTemplate,
    *,
    name: str,
    title: object,
    description: str,
) -> ResourceTemplate:
    """Build a template that reads the results of a tool, with the tool's permission and options."""
    return ResourceTemplate(
        name=name,
        title=str(title).capitalize(),
        description=description,
        permission=tool.permission,
        call_checks=tool.call_checks,
        scopes=tool.scopes,
        stands_for=tool,
        tags=tool.tags,
        metadata=tool.metadata,
        timeout=tool.timeout,
        handler=Handler(read, {"ctx": Context}, atomic=()),
        source=toolset.source,
        template=template,
        convert=dict,
        mime_type=JSON_MEDIA_TYPE,
        check_exists=True,
    )


def _build_page_uri(toolset: BaseModelToolset) -> PageUri:
    names = _list_filter_variables(toolset)
    paths = [name for name in names if _is_path(toolset, name)]
    own_names = [name for name in names if name not in paths]
    return PageUri(toolset.uri_scheme, (*own_names, *_RESERVED_VARIABLES), paths)


def _list_filter_variables(toolset: BaseModelToolset) -> tuple[str, ...]:
    """Return the variables that filter pages.

    They do not depend on toolsets that are registered later.
    """
    names = toolset.field_names() if toolset.list_filter == "__all__" else toolset.list_filter
    return tuple(name for name in names if name not in _RESERVED_VARIABLES and name not in toolset.sensitive_fields)


def _is_path(toolset: BaseModelToolset, name: str) -> bool:
    """Return True for a path into another model, which callers without its permission must not find."""
    return LOOKUP_SEP in name and find_field(toolset.model, name.partition(LOOKUP_SEP)[0]) is not None


def _build_page_template(toolset: BaseModelToolset) -> ResourceTemplate:
    rows, meta = toolset.get_tool("list"), toolset.model._meta
    variables = _list_filter_variables(toolset)

    async def read(ctx: Context, **values: str) -> Any:
        filters = {name: values[name] for name in variables if name in values}
        for name, text in filters.items():
            item = toolset.exposure.filters.get(name)
            filters[name] = parse_uri_value(None if item is None else item.codec, text)
            if filters[name] is None:
                return None
        given = {name: values[name] for name in _RESERVED_VARIABLES if name in values}
        return await _call_tool(ctx, rows, {**given, **({"filters": filters} if filters else {})})

    text = f"A page of {meta.verbose_name_plural}: what {rows.name} returns."
    name = str(meta.verbose_name_plural).replace(" ", "_")
    template = _build_page_uri(toolset)
    return _build_template(toolset, rows, read, template, name=name, title=meta.verbose_name_plural, description=text)


def _build_completer(target: str, argument: str, values: CompletionSource) -> Completer:
    async def complete(value: str, ctx: Context) -> Completion | Sequence[str]:
        return await values(value, ctx)

    return Completer(
        target=target, argument=argument, handler=Handler(complete, {"ctx": Context}, atomic=()), source=target
    )


def _find_completion_source(toolset: BaseModelToolset, name: str) -> CompletionSource | None:
    """Return the completion source of a filter, or None if it has none.

    Sources are related rows, choices, and the values true and false.
    """
    field = find_last_field(toolset.model, name)
    if field is None:
        return None
    if field.is_relation:
        return partial(_complete_related, toolset, field.related_model)
    if isinstance(field, models.BooleanField):
        return partial(_complete_choices, lambda: list(_BOOLEANS))
    # The choices may be a function of the project, so they are read at each completion.
    return partial(_complete_choices, partial(_list_choices, field)) if getattr(field, "choices", None) else None


def _list_choices(field: Any) -> list[str]:
    return [str(value) for value, _ in field.flatchoices if value not in (None, "")]


async def _complete_choices(list_choices: Callable[[], list[str]], prefix: str, ctx: Context) -> Sequence[str]:
    choices = await ctx.server.ports.executor.run(list_choices)
    return [choice for choice in choices if choice.lower().startswith(prefix.strip().lower())]


async def _complete_related(
    toolset: BaseModelToolset, model: object, prefix: str, ctx: Context
) -> Completion | Sequence[str]:
    target = toolset.find_toolset(model)
    return () if target is None or "list" not in target.tools else await complete_keys(target, prefix, ctx)


async def complete_keys(toolset: BaseModelToolset, prefix: str, ctx: Context) -> Completion:
    """Return primary keys of visible rows that match typed text.

    Matches are keys with this prefix, and rows that a search returns.
    """
    keys: dict[str, None] = {}
    limit = min(MAX_COMPLETIONS, toolset.max_limit)
    for query in _build_key_queries(toolset, prefix):
        if len(keys) < MAX_COMPLETIONS:
            page = await _call_tool(ctx, toolset.get_tool("list"), {"fields": [], "limit": limit, **query})
            keys |= dict.fromkeys(str(row["pk"]) for row in (page or {"items": ()})["items"])
    return Completion(list(keys)[:MAX_COMPLETIONS], has_more=len(keys) > MAX_COMPLETIONS)


def _build_key_queries(toolset: BaseModelToolset, prefix: str) -> list[JSONObject]:
    """Return the arguments of at most two `list` calls that find matching keys."""
    text = prefix.strip()[:100]
    if not text:
        return [{}]

    queries: list[JSONObject] = []
    codec = toolset.exposure.pk.codec
    if "istartswith" in codec.lookups:
        queries.append({"filters": {"pk__istartswith": text}})
    elif (value := parse_uri_value(codec, text)) is not None:
        try:
            codec.decode(value)
        except ValueError:
            pass
        else:
            queries.append({"filters": {"pk": value}})
    if toolset.exposure.search or toolset.is_overridden("get_search_results"):
        queries.append({"search": text})
    return queries


async def _call_tool(ctx: Context, tool: Tool, arguments: JSONObject) -> Any:
    """Return the tool's result, or None if the rows, a field or the tool are unavailable."""
    try:
        return await delegate_to_tool(ctx, tool, arguments)
    except (NotFound, UnknownFieldError, ArgumentError, InvalidParams, InsufficientScope):
        return None


def parse_uri_value(codec: Codec | None, text: str) -> Any:
    """Convert text from a URI to JSON for a column, or None if it is invalid."""
    match None if codec is None else codec.kind:
        case "integer":
            return int(text) if _INTEGER.fullmatch(text) else None
        case "boolean":
            return _BOOLEANS.get(text)
        case "number":
            try:
                return float(text)
            except ValueError:
                return None
        case None:
            return None
    return text

"""Stored prompts and resources: rows of the admin, served beside registered ones.

Every server has this provider, unless its `STORED` is False. It comes last, so that a stored primitive never replaces a
registered one. It has no tools and is never queried for them.

The process caches the rows of lists. Each request reads one row with the version, and the other rows only if the
version has changed. A saved change is therefore visible at the next request, on every worker. Messages and contents,
which may be large, are read on use. Subscribed clients are notified on save (`notifications.stored`), so `version` is
not needed for change detection.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import DatabaseError, connections, router, transaction

from mcp_django.models import StoredArgument, StoredMessage, StoredPrompt, StoredResource, StoredState
from mcp_django.models.stored.prompt import MessageKind
from mcp_django.models.stored.template_strings import fill, fill_uri, filled_length
from mcp_django.protocol.content import (
    BlobResourceContents,
    EmbeddedResource,
    PromptMessage,
    ResourceLink,
    TextContent,
)
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.types import Annotations
from mcp_django.schema import ArgumentError
from mcp_django.schema.validation.messages import choices, echo, missing, unknown
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import Handler
from mcp_django.server.methods.resources import contents_of
from mcp_django.server.primitives.base import Completion, Permission, Primitive, Prompt, Resource, ResourceTemplate

logger = logging.getLogger("mcp_django.server")

RENDERED = 2_000_000
"""Maximum characters of a rendered prompt, including embedded resources.

A text may use an argument many times, and callers choose the length of arguments.
"""
_CHOICES = "mcp_django.stored.choices"
_SHOWN = 5


class StoredProvider(Provider):
    """The stored prompts and resources of one server."""

    offers = frozenset({"prompts", "resources", "completions"})

    def __init__(self, alias: str, *, alone: bool = False) -> None:
        """Set the server; `excludes_shared` leaves out rows for all servers."""
        self._alias, self._alone = alias, alone
        self._shelf = _Shelf()

    def within(self) -> "StoredProvider":
        """Return a provider without the rows for all servers; the host serves them."""
        return StoredProvider(self._alias, alone=True)

    def guarded(self) -> frozenset[str]:
        try:
            # In a savepoint, because the transaction of the caller must survive missing tables.
            with transaction.atomic(using=router.db_for_write(StoredState)):
                shelf = self._look()
        except DatabaseError:
            return frozenset()
        lists: dict[str, Sequence[Primitive]] = {"prompts": shelf.prompts, "resources": shelf.resources}
        return frozenset(kind for kind, rows in lists.items() if any(row.permission for row in rows))

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        return (await self._current(ctx)).prompts

    async def prompt(self, name: str, ctx: Context) -> Prompt | None:
        return (await self._current(ctx)).prompts_by_name.get(name)

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return (await self._current(ctx)).resources

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        return (await self._current(ctx)).resources_by_uri.get(uri)

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        return ()

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str], ctx: Context
    ) -> Completion | Sequence[str] | None:
        # Choices of the prompt that the caller may use, which may be of another provider.
        known: Mapping[str, Sequence[str]] = ctx.metadata.get(_CHOICES, {})
        return _matching(known[argument], value) if argument in known else None

    async def _current(self, ctx: Context) -> "_Shelf":
        return await ctx.server.executor.run(self._look)

    def _look(self) -> "_Shelf":
        """Load the snapshot of the current version; blocks.

        The version is read first. Rows that are newer than it are read again next time, and never cached.
        """
        try:
            mark = StoredState.objects.mark()
        except DatabaseError:
            if _is_migrated():
                raise
            # Code is often deployed before its migrations; registered primitives are served until then.
            logger.warning("Stored prompts and resources are not served: the tables are missing; run `migrate`")
            return _Shelf()
        shelf = self._shelf
        if mark != shelf.mark:
            shelf = self._shelf = _read(self._alias, mark, alone=self._alone)
        return shelf


class _Shelf(NamedTuple):
    """The rows that were read for one version."""

    mark: str | None = None
    prompts: tuple[Prompt, ...] = ()
    resources: tuple[Resource, ...] = ()
    prompts_by_name: Mapping[str, Prompt] = {}
    resources_by_uri: Mapping[str, Resource] = {}


def _is_migrated() -> bool:
    connection = connections[router.db_for_write(StoredState)]
    return StoredState._meta.db_table in connection.introspection.table_names()


def _read(alias: str, mark: str, *, alone: bool) -> _Shelf:
    # A row for this server replaces one for all servers.
    served: dict[str, Any] = {"enabled": True, "server__in": [alias] if alone else ["", alias]}
    prompts = StoredPrompt.objects.filter(**served).order_by("server").prefetch_related("arguments")
    resources = StoredResource.objects.filter(**served).order_by("server").defer("text", "data")
    by_name = {row.name: build_prompt(row) for row in prompts}
    by_uri = {row.uri: build_resource(row) for row in resources}
    return _Shelf(mark, tuple(by_name.values()), tuple(by_uri.values()), by_name, by_uri)


def build_prompt(row: StoredPrompt) -> Prompt:
    """Build the prompt of a row. Its messages are read on use."""
    pk, arguments = row.pk, _Arguments.of(row)

    async def get(ctx: Context, values: dict[str, str]) -> list[PromptMessage]:
        rows = await ctx.server.executor.run(_messages, pk)
        return [message for found in _measured(rows, values) for message in await _filled(found, values, ctx)]

    return Prompt(
        name=row.name,
        title=row.title or None,
        description=row.description or row.title or row.name.replace("_", " ").capitalize(),
        tags=tuple(row.tags),
        permission=_permission(row),
        scopes=tuple(row.scopes),
        metadata={_CHOICES: {name: found for name, found in arguments.choices.items() if found}},
        handler=Handler(get, {"ctx": Context}, atomic=()),
        source=f"stored prompt {row}",
        parameters=arguments,
    )


def build_resource(row: StoredResource) -> Resource:
    """Build the resource of a row. Its content is read on use."""
    pk = row.pk

    def read() -> Any:
        found = StoredResource.objects.filter(pk=pk).first()
        return None if found is None else found.content

    annotations = Annotations(
        audience=row.audience.split() or None, priority=row.priority, last_modified=row.updated.isoformat()
    )
    return Resource(
        uri=row.uri,
        name=row.name,
        title=row.title or None,
        description=row.description or None,
        mime_type=row.mime_type or None,
        size=row.size,
        annotations=annotations,
        tags=tuple(row.tags),
        permission=_permission(row),
        scopes=tuple(row.scopes),
        handler=Handler(read, atomic=()),
        source=f"stored resource {row}",
    )


def _permission(row: StoredPrompt | StoredResource) -> Permission | None:
    return row.permission.split() or None


def _messages(prompt: int) -> list[StoredMessage]:
    return list(StoredMessage.objects.filter(prompt=prompt))


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The arguments of a prompt, with their choices and defaults."""

    arguments: list[dict[str, Any]]
    choices: Mapping[str, Sequence[str]]
    defaults: Mapping[str, str]

    @classmethod
    def of(cls, row: StoredPrompt) -> "_Arguments":
        found: Sequence[StoredArgument] = sorted(
            getattr(row, "arguments").all(),  # noqa: B009  the relation, unknown to mypy
            key=lambda one: (one.position, one.pk),
        )
        return cls(
            [_entry(one) for one in found],
            {one.name: tuple(one.choices) for one in found},
            {one.name: one.default for one in found},
        )

    def convert(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the value or default of every argument. Raises ArgumentError."""
        problems = [unknown(name, self.defaults, "argument") for name in values if name not in self.defaults]
        problems += [missing(one["name"], "argument") for one in self.arguments if _is_missing(one, values)]
        for name, value in values.items():
            allowed = self.choices.get(name)
            if allowed and value not in allowed:
                problems.append(f"{name}: {echo(value)} must be one of {choices(allowed)}")
        if problems:
            raise ArgumentError("; ".join(problems[:_SHOWN]))
        return {"values": {**self.defaults, **values}}


def _is_missing(argument: dict[str, Any], values: dict[str, Any]) -> bool:
    return argument["required"] and argument["name"] not in values


def _entry(row: StoredArgument) -> dict[str, Any]:
    said = {"name": row.name, "title": row.title, "description": row.description}
    return {key: value for key, value in said.items() if value} | {"required": row.required}


def _matching(known: Sequence[str], value: str) -> list[str]:
    """Return the choices that start with `value`, then those that contain it."""
    typed = value.casefold()
    folded = [(one, one.casefold()) for one in known]
    first = [one for one, text in folded if text.startswith(typed)]
    return first + [one for one, text in folded if typed in text and not text.startswith(typed)]


def _measured(rows: list[StoredMessage], values: Mapping[str, str]) -> list[StoredMessage]:
    """Return the rows if their rendered length is allowed.

    Raises InvalidParams before anything is rendered.
    """
    # A character may become twelve in an encoded URI.
    length = sum(filled_length(row.text, values) + 12 * filled_length(row.uri, values) for row in rows)
    _require_room(length)
    return rows


def _require_room(length: int) -> None:
    if length > RENDERED:
        raise InvalidParams(f"With these arguments the prompt is longer than {RENDERED} characters; shorten them")


async def _filled(row: StoredMessage, values: Mapping[str, str], ctx: Context) -> list[PromptMessage]:
    """Render a row: one message, or one for each content of a resource."""
    if row.kind == MessageKind.TEXT:
        return [PromptMessage(row.role, TextContent(fill(row.text, values)))]
    uri = fill_uri(row.uri, values)
    if row.kind == MessageKind.LINK:
        return [PromptMessage(row.role, ResourceLink(uri, fill(row.text, values) or uri))]
    found = await contents_of(uri, ctx)
    _require_room(sum(len(one.data if isinstance(one, BlobResourceContents) else one.text) for one in found))
    return [PromptMessage(row.role, EmbeddedResource(one)) for one in found]

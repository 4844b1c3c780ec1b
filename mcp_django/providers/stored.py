"""Stored prompts and resources: rows of the admin, served beside registered ones.

Every server has this provider, unless its `STORED` is False. It comes last, so that a stored primitive never replaces a
registered one. It has no tools and is never queried for them.

The process caches the rows of lists. Each request reads one row with the version, and the other rows only if the
version has changed. A saved change is therefore visible at the next request, on every worker. Messages and contents,
which may be large, are read on use. Subscribed clients are notified on save (`notifications.stored`), so `version` is
not needed for change detection.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from django.db import DatabaseError, connections, router, transaction

from mcp_django.models import StoredArgument, StoredMessage, StoredPrompt, StoredResource, StoredState
from mcp_django.models.stored.prompt import MessageKind
from mcp_django.models.stored.template_strings import fill, fill_uri, get_max_filled_length
from mcp_django.protocol.content import (
    BlobResourceContents,
    EmbeddedResource,
    PromptMessage,
    ResourceLink,
    TextContent,
)
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.types import Annotations
from mcp_django.schema import ArgumentError, DeclarationError, convert_failures
from mcp_django.schema.validation.messages import describe_missing, describe_unknown, format_choices, format_value
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import Handler
from mcp_django.server.methods.resources import read_contents
from mcp_django.server.primitives.base import Completion, Primitive, Prompt, Resource, ResourceTemplate

logger = get_logger("mcp_django.server")
R = TypeVar("R", StoredPrompt, StoredResource)
P = TypeVar("P", bound=Primitive)

MAX_RENDERED_CHARACTERS = 2_000_000
"""Maximum characters of a rendered prompt, including embedded resources.

A text may use an argument many times, and callers choose the length of arguments.
"""
_CHOICES_METADATA_KEY = "mcp_django.stored.choices"
_MAX_REPORTED_PROBLEMS = 5


class StoredProvider(Provider):
    """The stored prompts and resources of one server."""

    offers = frozenset({"prompts", "resources", "completions"})

    def __init__(self, alias: str, *, excludes_shared: bool = False) -> None:
        """Set the server; `excludes_shared` leaves out rows for all servers."""
        self._alias = alias
        self._excludes_shared = excludes_shared
        self._snapshot = _StoredSnapshot()

    def for_mounting(self) -> "StoredProvider":
        """Return a provider without the rows for all servers; the host serves them."""
        return StoredProvider(self._alias, excludes_shared=True)

    def get_permission_dependent(self) -> frozenset[str]:
        try:
            # In a savepoint, because the transaction of the caller must survive missing tables.
            with transaction.atomic(using=router.db_for_write(StoredState)):
                snapshot = self._load_snapshot()
        except DatabaseError:
            return frozenset()
        lists: dict[str, Sequence[Primitive]] = {"prompts": snapshot.prompts, "resources": snapshot.resources}
        return frozenset(kind for kind, rows in lists.items() if any(row.permission for row in rows))

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        return (await self._get_snapshot(ctx)).prompts

    async def prompt(self, name: str, ctx: Context) -> Prompt | None:
        return (await self._get_snapshot(ctx)).prompts_by_name.get(name)

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return (await self._get_snapshot(ctx)).resources

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        return (await self._get_snapshot(ctx)).resources_by_uri.get(uri)

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        return ()

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str], ctx: Context
    ) -> Completion | Sequence[str] | None:
        # Choices of the prompt that the caller may use, which may be of another provider.
        argument_choices: Mapping[str, Sequence[str]] = ctx.metadata.get(_CHOICES_METADATA_KEY, {})
        return _filter_choices(argument_choices[argument], value) if argument in argument_choices else None

    async def _get_snapshot(self, ctx: Context) -> "_StoredSnapshot":
        return await ctx.server.ports.executor.run(self._load_snapshot)

    def _load_snapshot(self) -> "_StoredSnapshot":
        """Load the snapshot of the current version; blocks.

        The version is read first. Rows that are newer than it are read again next time, and never cached.
        """
        try:
            version = StoredState.objects.get_version()
        except DatabaseError:
            if _is_migrated():
                raise
            # Code is often deployed before its migrations; registered primitives are served until then.
            logger.warning("Stored prompts and resources are not served: the tables are missing; run `migrate`")
            return _StoredSnapshot()
        snapshot = self._snapshot
        if version != snapshot.version:
            snapshot = self._snapshot = _read_snapshot(self._alias, version, excludes_shared=self._excludes_shared)
        return snapshot


class _StoredSnapshot(NamedTuple):
    """The rows that were read for one version."""

    version: str | None = None
    prompts: tuple[Prompt, ...] = ()
    resources: tuple[Resource, ...] = ()
    prompts_by_name: Mapping[str, Prompt] = {}
    resources_by_uri: Mapping[str, Resource] = {}


def _is_migrated() -> bool:
    connection = connections[router.db_for_write(StoredState)]
    return StoredState._meta.db_table in connection.introspection.table_names()


def _read_snapshot(alias: str, version: str, *, excludes_shared: bool) -> _StoredSnapshot:
    # A row for this server replaces one for all servers.
    filters: dict[str, Any] = {"enabled": True, "server__in": [alias] if excludes_shared else ["", alias]}
    prompts = StoredPrompt.objects.filter(**filters).order_by("server").prefetch_related("arguments")
    resources = StoredResource.objects.filter(**filters).order_by("server").defer("text", "data")
    by_name = {prompt.name: prompt for prompt in _build_rows(build_prompt, prompts)}
    by_uri = {resource.uri: resource for resource in _build_rows(build_resource, resources)}
    return _StoredSnapshot(version, tuple(by_name.values()), tuple(by_uri.values()), by_name, by_uri)


def _build_rows(build: Callable[[R], P], rows: Iterable[R]) -> Iterator[P]:
    """Yield the primitives of rows; a row with values that its form would refuse is logged and left out."""
    for row in rows:
        try:
            with convert_failures(f"stored row {row.pk}"):
                primitive = build(row)
        except DeclarationError as problem:
            logger.error("Stored primitive not served: %s", problem)
        else:
            yield primitive


def build_prompt(row: StoredPrompt) -> Prompt:
    """Build the prompt of a row. Its messages are read on use."""
    pk, arguments = row.pk, _StoredArguments.from_row(row)

    async def get(ctx: Context, values: dict[str, str]) -> list[PromptMessage]:
        rows = await ctx.server.ports.executor.run(_load_messages, pk)
        return [
            message for found in _check_length(rows, values) for message in await _render_message(found, values, ctx)
        ]

    return Prompt(
        **_build_common(row),
        name=row.name,
        description=row.description or row.title or row.name.replace("_", " ").capitalize(),
        metadata={_CHOICES_METADATA_KEY: {name: found for name, found in arguments.choices.items() if found}},
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
        **_build_common(row),
        uri=row.uri,
        name=row.name,
        description=row.description or None,
        mime_type=row.mime_type or None,
        size=row.size,
        annotations=annotations,
        handler=Handler(read, atomic=()),
        source=f"stored resource {row}",
    )


def _build_common(row: StoredPrompt | StoredResource) -> dict[str, Any]:
    return {
        "title": row.title or None,
        "tags": tuple(row.tags),
        "permission": row.permission.split() or None,
        "scopes": _read_scopes(row),
    }


def _read_scopes(row: StoredPrompt | StoredResource) -> tuple[str, ...]:
    """Return the scopes of a row. Raises TypeError, ValueError for a column with other values."""
    if not all(isinstance(scope, str) for scope in row.scopes):
        raise ValueError("scopes: each has to be a text")
    return tuple(row.scopes)


def _load_messages(prompt: int) -> list[StoredMessage]:
    return list(StoredMessage.objects.filter(prompt=prompt))


@dataclass(frozen=True, slots=True)
class _StoredArguments:
    """The arguments of a prompt, with their choices and defaults."""

    arguments: list[dict[str, Any]]
    choices: Mapping[str, Sequence[str]]
    defaults: Mapping[str, str]

    @classmethod
    def from_row(cls, row: StoredPrompt) -> "_StoredArguments":
        found: Sequence[StoredArgument] = sorted(
            getattr(row, "arguments").all(),  # noqa: B009  the relation, unknown to mypy
            key=lambda one: (one.position, one.pk),
        )
        return cls(
            [_describe_argument(one) for one in found],
            {one.name: tuple(one.choices) for one in found},
            {one.name: one.default for one in found},
        )

    def convert(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the value or default of every argument. Raises ArgumentError."""
        problems = [describe_unknown(name, self.defaults, "argument") for name in values if name not in self.defaults]
        required = [one["name"] for one in self.arguments if one["required"]]
        problems += [describe_missing(name, "argument") for name in required if name not in values]
        for name, value in values.items():
            allowed = self.choices.get(name)
            if allowed and value not in allowed:
                problems.append(f"{name}: {format_value(value)} must be one of {format_choices(allowed)}")
        if problems:
            raise ArgumentError("; ".join(problems[:_MAX_REPORTED_PROBLEMS]))
        return {"values": {**self.defaults, **values}}


def _describe_argument(row: StoredArgument) -> dict[str, Any]:
    texts = {"name": row.name, "title": row.title, "description": row.description}
    return {key: value for key, value in texts.items() if value} | {"required": row.required}


def _filter_choices(known_choices: Sequence[str], value: str) -> list[str]:
    """Return the choices that start with `value`, then those that contain it."""
    typed = value.casefold()
    folded = [(choice, choice.casefold()) for choice in known_choices]
    first = [choice for choice, text in folded if text.startswith(typed)]
    return first + [choice for choice, text in folded if typed in text and not text.startswith(typed)]


def _check_length(rows: list[StoredMessage], values: Mapping[str, str]) -> list[StoredMessage]:
    """Return the rows if their rendered length is allowed.

    Raises InvalidParams before anything is rendered.
    """
    # A character may become twelve in an encoded URI.
    length = sum(get_max_filled_length(row.text, values) + 12 * get_max_filled_length(row.uri, values) for row in rows)
    _check_rendered_length(length)
    return rows


def _check_rendered_length(length: int) -> None:
    if length > MAX_RENDERED_CHARACTERS:
        raise InvalidParams(
            f"With these arguments the prompt is longer than {MAX_RENDERED_CHARACTERS} characters; shorten them"
        )


async def _render_message(row: StoredMessage, values: Mapping[str, str], ctx: Context) -> list[PromptMessage]:
    """Render a row: one message, or one for each content of a resource."""
    if row.kind == MessageKind.TEXT:
        return [PromptMessage(row.role, TextContent(fill(row.text, values)))]
    uri = fill_uri(row.uri, values)
    if row.kind == MessageKind.LINK:
        return [PromptMessage(row.role, ResourceLink(uri, fill(row.text, values) or uri))]
    resource_contents = await read_contents(uri, ctx)
    _check_rendered_length(
        sum(
            len(content.data if isinstance(content, BlobResourceContents) else content.text)
            for content in resource_contents
        )
    )
    return [PromptMessage(row.role, EmbeddedResource(content)) for content in resource_contents]

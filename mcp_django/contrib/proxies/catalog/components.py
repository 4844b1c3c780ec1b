"""Entries of a remote server as local primitives.

An entry is served unchanged, with its schemas, texts, icons and `_meta`, under another name. Malformed members are
omitted; an entry with a malformed required member is skipped. Entries are compiled once and shared by all callers.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mcp_django.contrib.proxies.forwarding.results import meta_of
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.headers import HeaderParam
from mcp_django.protocol.uri import UriTemplate
from mcp_django.providers.prefixes import Naming
from mcp_django.schema import ArgumentError, Checker, DeclarationError, OutputError, check_schema, header_params
from mcp_django.server.calls.log_sanitizer import label
from mcp_django.server.composition.lowlevel import ListedArguments
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import Handler
from mcp_django.server.primitives.base import Permission, Primitive, Prompt, Resource, ResourceTemplate, Tool
from mcp_django.server.rates import Rate

logger = logging.getLogger("mcp_django.client")

Wire = dict[str, Any]
REMOTE = "remote"
"""Key of a primitive's `metadata` with its name or URI on the remote server."""
COMPILED = 4096
"""Maximum number of entries that stay compiled."""
ENTRY_BYTES = 512 * 1024
"""Maximum bytes of JSON in one entry."""
TITLE, TEXT, ICON = 1000, 50_000, 100_000
"""Maximum characters of a title, of a description, and of an icon's URL."""
ICONS, ARGUMENTS = 20, 100
_HINTS = {"title": str, "readOnlyHint": bool, "destructiveHint": bool, "idempotentHint": bool, "openWorldHint": bool}


@dataclass(frozen=True, slots=True)
class RemoteParameters:
    """Arguments of a remote tool, which are forwarded unchanged."""

    schema: Wire
    header_params: tuple[HeaderParam, ...]
    _checker: Checker

    def check(self, arguments: Wire) -> None:
        if not self._checker.is_valid(arguments):
            raise ArgumentError(self._checker.problems(arguments))

    def convert(self, arguments: Wire) -> Wire:
        return {"arguments": arguments}


@dataclass(frozen=True, slots=True)
class RemoteOutput:
    """Structured result of a remote tool, which is forwarded unchanged."""

    schema: Wire
    _checker: Checker
    wrapped: bool = False

    def structured(self, value: Any) -> Any:
        if not self._checker.is_valid(value):
            raise OutputError("the result does not fit its output schema")
        return value


@dataclass(kw_only=True, eq=False)
class RemoteTool(Tool):
    """A tool of a remote server."""

    entry: Wire

    def _wire(self) -> Wire:
        return {**self.entry, "name": self.name}

    @cached_property
    def repeats(self) -> bool:
        """True if a call with unknown outcome may be repeated."""
        hints = self.entry.get("annotations", {})
        return hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True


@dataclass(kw_only=True, eq=False)
class RemoteResource(Resource):
    """A resource of a remote server."""

    entry: Wire = field(default_factory=dict)

    def _wire(self) -> Wire:
        return {**self.entry, "uri": self.uri, "name": self.name}


@dataclass(kw_only=True, eq=False)
class RemoteTemplate(ResourceTemplate):
    """A resource template of a remote server."""

    entry: Wire

    def _wire(self) -> Wire:
        return {**self.entry, "uriTemplate": self.template.text, "name": self.name}


@dataclass(kw_only=True, eq=False)
class RemotePrompt(Prompt):
    """A prompt of a remote server."""

    entry: Wire

    def _wire(self) -> Wire:
        return {**self.entry, "name": self.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Options of all primitives of a proxy."""

    permission: Permission | None
    scopes: tuple[str, ...]
    rate: Rate | None
    timeout: float | None


class Entries:
    """Factory of primitives from the entries of one remote server."""

    def __init__(
        self,
        alias: str,
        naming: Naming,
        terms: Terms,
        handlers: Mapping[str, Callable[..., Any]],
        *,
        follow: Callable[..., Any],
    ) -> None:
        """Create a factory.

        `handlers` run a "tool", a "resource" and a "prompt"; each takes the Context. `follow` is the `Resource.follow`
        of all resources.
        """
        self._naming = naming
        self._common: dict[str, Any] = {"permission": terms.permission, "scopes": terms.scopes}
        self._common |= {"timeout": terms.timeout, "source": f"the server {alias!r}"}
        self._rate, self._alias, self._follow = terms.rate, alias, follow
        self._handlers = {kind: Handler(run, {"ctx": Context}, atomic=()) for kind, run in handlers.items()}
        self._made: OrderedDict[tuple[str, bytes], Primitive | None] = OrderedDict()
        self._make: dict[str, Callable[[Wire], Primitive]] = {
            "tools": self._tool,
            "resources": self._resource,
            "templates": self._template,
            "prompts": self._prompt,
        }

    def make(self, kind: str, entry: Any) -> Any:
        """Return the primitive of an entry of this list; None for an invalid entry."""
        try:
            content = jsonrpc.dumps_sorted(entry)
        except (TypeError, ValueError):
            content = b""
        key = kind, content
        if key not in self._made:
            self._made[key] = self._checked(kind, entry, content)
            if len(self._made) > COMPILED:
                self._made.popitem(last=False)
        return self._made[key]

    def _checked(self, kind: str, entry: Any, content: bytes) -> Primitive | None:
        named = entry.get("name") if type(entry) is dict else None
        shown = label(named) if type(named) is str else "without a name"
        if type(named) is not str or not 0 < len(content) <= ENTRY_BYTES:
            logger.warning(
                "Invalid or oversized entry from the server %r in its %s skipped: %s", self._alias, kind, shown
            )
            return None

        try:
            return self._make[kind](entry)
        except (DeclarationError, ValueError, TypeError, KeyError) as problem:
            # The exception may quote text of the remote server.
            said = label(str(problem))
            logger.warning("Invalid entry from the server %r skipped: %s %s: %s", self._alias, kind, shown, said)
            return None

    def _tool(self, entry: Wire) -> RemoteTool:
        name = self._naming.name(entry["name"], foreign=True)
        schema, output = entry.get("inputSchema"), entry.get("outputSchema")
        checker = check_schema(schema, "inputSchema")
        assert isinstance(schema, dict)  # validated by `check_schema`
        kept = {**_texts(entry), "inputSchema": schema}
        promised = None
        if type(output) is dict:
            promised = RemoteOutput(output, check_schema(output, "outputSchema"))
            kept["outputSchema"] = output
        hints = entry.get("annotations")
        if type(hints) is dict:
            kept["annotations"] = {key: hints[key] for key, kind in _HINTS.items() if type(hints.get(key)) is kind}

        return RemoteTool(
            name=name,
            **self._shared(kept, entry["name"]),
            handler=self._handlers["tool"],
            parameters=RemoteParameters(schema, header_params(schema, "inputSchema"), checker),
            output=promised,
            rate=self._rate,
        )

    def _resource(self, entry: Wire) -> RemoteResource:
        uri = entry["uri"]
        kept = {**_texts(entry), **_media(entry)}
        if type(entry.get("size")) is int and entry["size"] >= 0:
            kept["size"] = entry["size"]
        return self._at(self._naming.uri(uri), uri, entry["name"], kept)

    def at(self, uri: str, own: str) -> RemoteResource:
        """Return the unlisted resource at `uri`, which the remote server knows as `own`."""
        return self._at(uri, own, own, {}, is_listed=False)

    def _at(self, uri: str, own: str, name: str, kept: Wire, *, is_listed: bool = True) -> RemoteResource:
        shared: dict[str, Any] = {**self._shared(kept, own), "is_listed": is_listed}
        shared |= {"handler": self._handlers["resource"], "follow": self._follow}
        return RemoteResource(uri=uri, name=name[:TITLE], **shared)

    def _template(self, entry: Wire) -> RemoteTemplate:
        def refuse() -> None:
            """Templates are only listed."""

        return RemoteTemplate(
            name=entry["name"][:TITLE],
            template=self._naming.template(UriTemplate(entry["uriTemplate"])),
            convert=dict,
            **self._shared({**_texts(entry), **_media(entry)}, entry["uriTemplate"]),
            handler=Handler(refuse),
        )

    def _prompt(self, entry: Wire) -> RemotePrompt:
        given = entry.get("arguments", [])
        if type(given) is not list or len(given) > ARGUMENTS:
            raise ValueError("its arguments are not a list, or too many")
        arguments = [_argument(one) for one in given]
        kept = _texts(entry)
        if arguments:
            kept["arguments"] = arguments
        return RemotePrompt(
            name=self._naming.name(entry["name"], foreign=True),
            **self._shared(kept, entry["name"]),
            handler=self._handlers["prompt"],
            parameters=ListedArguments(arguments),
        )

    def _shared(self, kept: Wire, own: str) -> dict[str, Any]:
        told = {key: kept.get(key) for key in ("title", "description")}
        return {**self._common, **told, "entry": kept, "metadata": {REMOTE: own}}


def _texts(entry: Wire) -> Wire:
    """Return the valid members that all kinds of entries share."""
    kept: Wire = {"name": ""}
    for key, most in (("title", TITLE), ("description", TEXT)):
        if type(entry.get(key)) is str:
            kept[key] = entry[key][:most]
    icons = entry.get("icons")
    if type(icons) is list and (shown := [icon for one in icons[:ICONS] if (icon := _icon(one))]):
        kept["icons"] = shown
    if meta := meta_of(entry):
        kept["_meta"] = meta
    return kept


def _icon(raw: Any) -> Wire | None:
    source = raw.get("src") if type(raw) is dict else None
    if type(source) is not str or not source.startswith(("https://", "http://", "data:")) or len(source) > ICON:
        return None
    icon: Wire = {"src": source}
    if type(raw.get("mimeType")) is str:
        icon["mimeType"] = raw["mimeType"]
    sizes = raw.get("sizes")
    if type(sizes) is list and all(type(size) is str for size in sizes):
        icon["sizes"] = sizes
    if raw.get("theme") in ("light", "dark"):
        icon["theme"] = raw["theme"]
    return icon


def _media(entry: Wire) -> Wire:
    """Return the valid members that resources and templates share."""
    kept: Wire = {}
    if type(entry.get("mimeType")) is str:
        kept["mimeType"] = entry["mimeType"]

    hints = entry.get("annotations")
    if type(hints) is dict:
        audience, priority, modified = (hints.get(key) for key in ("audience", "priority", "lastModified"))
        found: Wire = {}
        if type(audience) is list and all(who in ("user", "assistant") for who in audience):
            found["audience"] = audience
        if isinstance(priority, int | float) and not isinstance(priority, bool) and 0 <= priority <= 1:
            found["priority"] = priority
        if type(modified) is str:
            found["lastModified"] = modified[:TITLE]
        if found:
            kept["annotations"] = found
    return kept


def _argument(raw: Any) -> Wire:
    """Return one argument of a prompt. Raises ValueError if it has no name."""
    if type(raw) is not dict or type(raw.get("name")) is not str:
        raise ValueError("one of its arguments has no name")
    kept: Wire = {"name": raw["name"]}
    for key, kind in (("title", str), ("description", str), ("required", bool)):
        if type(raw.get(key)) is kind:
            kept[key] = raw[key]
    return kept

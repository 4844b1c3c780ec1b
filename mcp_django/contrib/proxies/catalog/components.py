"""Entries of a remote server as local primitives.

An entry is served unchanged, with its schemas, texts, icons and `_meta`, under another name. Malformed members are
omitted; an entry with a malformed required member is skipped. Entries are compiled once and shared by all callers.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mcp_django.contrib.proxies.catalog.remote_skills import build_metadata
from mcp_django.contrib.proxies.forwarding.results import extract_meta
from mcp_django.contrib.proxies.forwarding.uris import has_valid_source
from mcp_django.extensions.calls import Context, get_logger, jsonrpc, sanitize_label
from mcp_django.extensions.errors import DeclarationError, OutputError
from mcp_django.extensions.primitives import (
    Handler,
    Permission,
    Primitive,
    Prompt,
    Rate,
    Resource,
    ResourceTemplate,
    TaskOptions,
    Tool,
    UriTemplate,
    convert_app_uris,
    convert_failures,
    list_app_uris,
    remove_app_uris,
)
from mcp_django.extensions.schemas import CustomParameters, SchemaChecker, check_schema, find_header_params
from mcp_django.protocol.jsonrpc import is_unicode
from mcp_django.protocol.uri import is_script_uri
from mcp_django.providers.prefixes import NamePrefixes
from mcp_django.server.composition.local_resources import find_local_uris
from mcp_django.server.composition.lowlevel import ListedArguments
from mcp_django.types import clean_line, clean_text

logger = get_logger("mcp_django.client")

Wire = dict[str, Any]
REMOTE_NAME_KEY = "remote"
"""Key of a primitive's `metadata` with its name or URI on the remote server."""
MAX_COMPILED_ENTRIES = 4096
"""Maximum number of entries that stay compiled."""
MAX_ENTRY_BYTES = 512 * 1024
"""Maximum bytes of JSON in one entry."""
MAX_TITLE_CHARACTERS, MAX_DESCRIPTION_CHARACTERS, MAX_ICON_CHARACTERS = 1000, 50_000, 100_000
"""Maximum characters of a title, of a description, and of an icon's URL."""
MAX_ICONS, MAX_ARGUMENTS = 20, 100
_NAMING_MEMBERS = ("name", "uri", "uriTemplate")
_ANNOTATION_TYPES = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}


@dataclass(frozen=True, slots=True)
class RemoteOutput:
    """Structured result of a remote tool, which is forwarded unchanged."""

    schema: Wire
    _checker: SchemaChecker
    is_wrapped: bool = False

    def to_structured(self, value: Any) -> Any:
        if not self._checker.is_valid(value):
            raise OutputError("the result does not fit its output schema")
        return value


@dataclass(kw_only=True, eq=False)
class RemoteTool(Tool):
    """A tool of a remote server."""

    entry: Wire
    requires_task: bool = False
    """True if a server of the handshake era runs the tool as a task only."""

    def get_converted_uris(self, convert: Callable[[str], str]) -> dict[str, Any]:
        meta = self.entry.get("_meta")
        return {} if meta is None else {"entry": {**self.entry, "_meta": convert_app_uris(meta, convert)}}

    def _wire(self) -> Wire:
        return {**self.entry, "name": self.name}

    @cached_property
    def app_uris(self) -> tuple[str, ...]:
        """Local URIs of the page that shows the results, in all forms of the link."""
        return tuple(list_app_uris(self.entry.get("_meta")))

    @cached_property
    def is_for_pages(self) -> bool:
        """True if a page of the remote server shows the results, or is the only caller."""
        ui = self.entry.get("_meta", {}).get("ui")
        return bool(self.app_uris) or (isinstance(ui, Mapping) and ui.get("visibility") == ["app"])

    @cached_property
    def without_page(self) -> "RemoteTool":
        """The tool without the link to its page."""
        return replace(self, entry={**self.entry, "_meta": remove_app_uris(self.entry.get("_meta", {}))})

    @cached_property
    def is_repeatable(self) -> bool:
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
class ComponentOptions:
    """Options of all primitives of a proxy."""

    permission: Permission | None
    scopes: tuple[str, ...]
    rate: Rate | None


class ComponentFactory:
    """Factory of primitives from the entries of one remote server."""

    def __init__(
        self,
        alias: str,
        naming: NamePrefixes,
        options: ComponentOptions,
        handlers: Mapping[str, Callable[..., Any]],
        *,
        follow: Callable[..., Any],
    ) -> None:
        """Create a factory.

        `handlers` run a "tool", a "resource" and a "prompt"; each takes the Context. `follow` is the `Resource.follow`
        of all resources.
        """
        self._naming = naming
        self._common: dict[str, Any] = {
            "permission": options.permission,
            "scopes": options.scopes,
            "source": f"the server {alias!r}",
        }
        self._rate = options.rate
        self._alias = alias
        self._follow = follow
        self._handlers = {kind: Handler(run, {"ctx": Context}, atomic=()) for kind, run in handlers.items()}
        self._compiled: OrderedDict[tuple[str, bytes], Primitive | None] = OrderedDict()
        self._builders: dict[str, Callable[[Wire], Primitive]] = {
            "tools": self._tool,
            "resources": self._resource,
            "templates": self._template,
            "prompts": self._prompt,
        }

    def build(self, kind: str, entry: Any) -> Any:
        """Return the primitive of an entry of this list; None for an invalid entry."""
        try:
            content = jsonrpc.dumps_sorted(entry)
        except (TypeError, ValueError):
            content = b""
        key = kind, content
        if key not in self._compiled:
            self._compiled[key] = self._build_checked(kind, entry, content)
            if len(self._compiled) > MAX_COMPILED_ENTRIES:
                self._compiled.popitem(last=False)
        return self._compiled[key]

    def _build_checked(self, kind: str, entry: Any, content: bytes) -> Primitive | None:
        name = entry.get("name") if type(entry) is dict else None
        shown_name = sanitize_label(name) if type(name) is str else "without a name"
        if type(name) is not str or not 0 < len(content) <= MAX_ENTRY_BYTES:
            logger.warning(
                "Invalid or oversized entry from the server %r in its %s skipped: %s", self._alias, kind, shown_name
            )
            return None

        try:
            with convert_failures("the entry"):
                return self._build_encodable(kind, entry)
        except DeclarationError as problem:
            # The exception may quote text of the remote server.
            reason = sanitize_label(str(problem))
            logger.warning("Invalid entry from the server %r skipped: %s %s: %s", self._alias, kind, shown_name, reason)
            return None

    def _build_encodable(self, kind: str, entry: Wire) -> Primitive:
        if not all(is_unicode(entry[key]) for key in _NAMING_MEMBERS if type(entry.get(key)) is str):
            raise DeclarationError("a name or a URI has half of a character")
        primitive = self._builders[kind](entry)
        jsonrpc.dumps(primitive.wire)
        return primitive

    def _tool(self, entry: Wire) -> RemoteTool:
        name = self._naming.name(entry["name"], foreign=True)
        schema, output = entry.get("inputSchema"), entry.get("outputSchema")
        checker = check_schema(schema, "inputSchema")
        assert isinstance(schema, dict)  # validated by `check_schema`
        members = {**_read_texts(entry), "inputSchema": schema}
        if "_meta" in members:
            members["_meta"] = convert_app_uris(members["_meta"], self._naming.uri)
        remote_output = None
        if type(output) is dict:
            remote_output = RemoteOutput(output, check_schema(output, "outputSchema"))
            members["outputSchema"] = output
        hints = entry.get("annotations")
        if type(hints) is dict:
            members["annotations"] = {
                key: hints[key] for key, kind in _ANNOTATION_TYPES.items() if type(hints.get(key)) is kind
            }

        execution = entry.get("execution")
        task_support = execution.get("taskSupport") if type(execution) is dict else None
        return RemoteTool(
            name=name,
            requires_task=task_support == "required",
            task=TaskOptions() if task_support in ("optional", "required") else None,
            **self._get_options(members, entry["name"]),
            handler=self._handlers["tool"],
            parameters=CustomParameters(schema, checker, find_header_params(schema, "inputSchema")),
            output=remote_output,
            rate=self._rate,
        )

    def _resource(self, entry: Wire) -> RemoteResource:
        uri = entry["uri"]
        _check_scheme(uri)
        members = {**_read_texts(entry), **_read_media(entry)}
        if type(entry.get("size")) is int and entry["size"] >= 0:
            members["size"] = entry["size"]
        return self._build_resource(self._naming.uri(uri), uri, entry["name"], members, build_metadata(entry))

    def build_unlisted(self, uri: str, own: str, metadata: Wire | None = None) -> RemoteResource:
        """Return the unlisted resource at `uri`, which the remote server knows as `own`."""
        return self._build_resource(uri, own, own, {}, metadata or {}, is_listed=False)

    def _build_resource(
        self, uri: str, own: str, name: str, members: Wire, metadata: Wire, *, is_listed: bool = True
    ) -> RemoteResource:
        options: dict[str, Any] = {**self._get_options(members, own), "is_listed": is_listed}
        options["metadata"] = {**options["metadata"], **metadata}
        options |= {"handler": self._handlers["resource"], "follow": self._follow}
        return RemoteResource(uri=uri, name=name[:MAX_TITLE_CHARACTERS], **options)

    def _template(self, entry: Wire) -> RemoteTemplate:
        def refuse() -> None:
            """Templates are only listed."""

        _check_scheme(entry["uriTemplate"])
        return RemoteTemplate(
            name=entry["name"][:MAX_TITLE_CHARACTERS],
            template=self._naming.template(UriTemplate(entry["uriTemplate"])),
            convert=dict,
            **self._get_options({**_read_texts(entry), **_read_media(entry)}, entry["uriTemplate"]),
            handler=Handler(refuse),
        )

    def _prompt(self, entry: Wire) -> RemotePrompt:
        given = entry.get("arguments", [])
        if type(given) is not list or len(given) > MAX_ARGUMENTS:
            raise ValueError("its arguments are not a list, or too many")
        arguments = [_read_argument(one) for one in given]
        members = _read_texts(entry)
        if arguments:
            members["arguments"] = arguments
        return RemotePrompt(
            name=self._naming.name(entry["name"], foreign=True),
            **self._get_options(members, entry["name"]),
            handler=self._handlers["prompt"],
            parameters=ListedArguments(arguments),
        )

    def _get_options(self, members: Wire, own: str) -> dict[str, Any]:
        texts = {key: members.get(key) for key in ("title", "description")}
        return {**self._common, **texts, "entry": members, "metadata": {REMOTE_NAME_KEY: own}}


def _check_scheme(uri: str) -> None:
    """Check that no browser runs a URI or template. Raises ValueError."""
    if is_script_uri(uri):
        raise ValueError(f"browsers run the URI {uri[:MAX_TITLE_CHARACTERS]!r}")


def _read_texts(entry: Wire) -> Wire:
    """Return the valid members that all kinds of entries share."""
    members: Wire = {"name": ""}
    if type(title := entry.get("title")) is str:
        members["title"] = clean_line(title)[:MAX_TITLE_CHARACTERS]
    if type(description := entry.get("description")) is str:
        members["description"] = clean_text(description)[:MAX_DESCRIPTION_CHARACTERS]
    icons = entry.get("icons")
    if type(icons) is list and (
        valid_icons := [icon for raw_icon in icons[:MAX_ICONS] if (icon := _read_icon(raw_icon))]
    ):
        members["icons"] = valid_icons
    if meta := extract_meta(entry):
        members["_meta"] = meta
    return members


def _read_icon(raw: Any) -> Wire | None:
    if not has_valid_source(raw) or len(raw["src"]) > MAX_ICON_CHARACTERS:
        return None
    icon: Wire = {"src": raw["src"]}
    if type(raw.get("mimeType")) is str:
        icon["mimeType"] = raw["mimeType"]
    sizes = raw.get("sizes")
    if type(sizes) is list and all(type(size) is str for size in sizes):
        icon["sizes"] = sizes
    if raw.get("theme") in ("light", "dark"):
        icon["theme"] = raw["theme"]
    return icon


def _read_media(entry: Wire) -> Wire:
    """Return the valid members that resources and templates share."""
    members: Wire = {}
    if type(entry.get("mimeType")) is str:
        members["mimeType"] = entry["mimeType"]

    hints = entry.get("annotations")
    if type(hints) is dict:
        audience, priority, modified = (hints.get(key) for key in ("audience", "priority", "lastModified"))
        annotations: Wire = {}
        if type(audience) is list and all(who in ("user", "assistant") for who in audience):
            annotations["audience"] = audience
        if isinstance(priority, int | float) and not isinstance(priority, bool) and 0 <= priority <= 1:
            annotations["priority"] = priority
        if type(modified) is str:
            annotations["lastModified"] = modified[:MAX_TITLE_CHARACTERS]
        if annotations:
            members["annotations"] = annotations
    return members


def _read_argument(raw: Any) -> Wire:
    """Return one argument of a prompt. Raises ValueError if it has no name."""
    if type(raw) is not dict or type(raw.get("name")) is not str:
        raise ValueError("one of its arguments has no name")
    members: Wire = {"name": raw["name"]}
    for key in ("title", "description"):
        if type(raw.get(key)) is str:
            members[key] = clean_line(raw[key])
    if type(raw.get("required")) is bool:
        members["required"] = raw["required"]
    return members


async def remove_local_pages(ctx: Context, tools: tuple[RemoteTool, ...]) -> tuple[RemoteTool, ...]:
    """Return tools without their links to pages that a server of the call serves itself."""
    linked = {uri for tool in tools for uri in tool.app_uris}
    local = await find_local_uris(ctx, linked) if linked else set[str]()
    if not local:
        return tools
    return tuple(tool if local.isdisjoint(tool.app_uris) else tool.without_page for tool in tools)

"""Primitives of a server: tools, resources, templates, prompts and completers.

Primitives are compiled at registration: all properties that can be derived from a function are computed once. A call
only finds, checks, converts and runs.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol

from mcp_django.protocol.headers import HeaderParam
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.meta import TAGS_KEY
from mcp_django.protocol.revisions import Revision
from mcp_django.protocol.types import Annotations, Icon, ToolAnnotations
from mcp_django.protocol.uri import UriTemplate
from mcp_django.schema import build_portable_input, build_portable_output, call_in_default_language
from mcp_django.server.injection.handler import Handler
from mcp_django.server.primitives.task_options import TaskOptions
from mcp_django.server.primitives.ui_options import UIOptions, convert_app_uris

if TYPE_CHECKING:
    from mcp_django.server.calls.call import Call
    from mcp_django.server.server import Server

ScopesFor = Callable[[JSONObject], Any]
"""Function that returns scopes, or an awaitable of scopes."""
STRICT: Final = "strict"
Confirmation = bool | Literal["strict"]
"""Confirmation of a call by the user; with "strict" in no way that a model could use itself."""
Permission = str | Callable[[Any], object] | Sequence[str | Callable[[Any], object]]
"""Django permission (`"app.codename"`), function of the principal, or several of both.

Several are all required.
"""

_RATE = re.compile(r"([1-9]\d{0,8})/([1-9]\d{0,4})?(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RATE_FORMAT = "a rate such as '10/m': a number, a slash, and s, m, h or d, or several of these, such as '5/15m'"
"""Description of the accepted format of a rate, for messages."""


class Rate(NamedTuple):
    """A maximum number of uses in a number of seconds."""

    times: int
    seconds: int

    @classmethod
    def parse(cls, text: object) -> "Rate":
        """Parse "10/s", "10/m", "100/h", "1000/d" or, for several units, "5/15m".

        Raises ValueError.
        """
        matched = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
        if matched is None:
            raise ValueError(f"Invalid rate {text!r}; write {RATE_FORMAT}")
        times, unit_count, unit = matched.groups()
        return cls(int(times), int(unit_count or 1) * _SECONDS[unit[0]])

    def __str__(self) -> str:
        for unit, seconds in reversed(_SECONDS.items()):
            if self.seconds % seconds == 0:
                unit_count = self.seconds // seconds
                return f"{self.times}/{unit_count if unit_count > 1 else ''}{unit}"
        raise AssertionError("every period is a multiple of one second")


def combine_permissions(first: Permission | None, second: Permission | None) -> Permission | None:
    """Combine two permissions into one that requires both; None is no requirement."""
    if first is None or second is None:
        return second if first is None else first
    parts: list[Any] = []
    for permission in (first, second):
        parts.extend([permission] if isinstance(permission, str) or callable(permission) else permission)
    return tuple(parts)


class CallCheck(NamedTuple):
    """Check of the caller that a handler makes at each call, as reports describe it."""

    name: str
    is_allowed: Callable[[Any], object]
    """Function of the Context; runs on a thread."""
    hides: bool = False
    """True if lists leave the primitive out for callers whom it refuses."""


@dataclass(kw_only=True, eq=False)
class Primitive(ABC):
    """Common base class of all primitives."""

    kind: ClassVar[str]

    name: str
    title: str | None = None
    description: str | None = None
    icons: Sequence[Icon] = ()
    tags: Sequence[str] = ()
    meta: JSONMapping = field(default_factory=dict)
    permission: Permission | None = None
    """Django permission (`"app.codename"`), several, or a function of the principal.

    The primitive is HIDDEN from callers without it.
    """
    scopes: tuple[str, ...] = ()
    """Required OAuth scopes; a refused client receives the missing ones."""
    stands_for: "Tool | None" = None
    """Tool to which the handler delegates.

    Callers who cannot see that tool cannot see this primitive either.
    """
    timeout: float | None = None
    """Maximum run time in seconds; None for the server's default."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Data for guards, interceptors and handlers; never sent to clients."""
    guards: Sequence[Callable[..., object]] = ()
    """Functions of the Context that run first; False refuses the call."""
    interceptors: Sequence[Callable[..., object]] = ()
    """Functions of the Context and of the inner step, the outermost first."""
    exception_handlers: Mapping[type[Exception], Callable[..., object]] = field(default_factory=dict)
    """Functions of an exception and the Context that return the result, by class."""
    handler: Handler
    source: str = ""
    """Place of the declaration, for messages."""
    call_checks: Sequence[CallCheck] = ()
    """Checks that the handler makes itself, in addition to `permission` and `scopes`."""
    mount_origin: "MountOrigin | None" = None
    """Mount and original of a primitive from a mounted server."""

    @property
    def key(self) -> str:
        """Unique key among primitives of the same kind; lists are sorted by it."""
        return self.name

    @property
    def origin(self) -> "Primitive":
        """Original primitive in the server that declares it."""
        return self if self.mount_origin is None else self.mount_origin.primitive.origin

    @property
    def has_hiding_checks(self) -> bool:
        """True if a check of each call also decides about lists."""
        return any(check.hides for check in self.call_checks)

    @property
    def has_hooks(self) -> bool:
        """True if hooks run around the handler."""
        return bool(self.guards or self.interceptors or self.exception_handlers)

    @cached_property
    def wire(self) -> JSONObject:
        """Complete list entry; a revision omits the members it does not define."""
        return call_in_default_language(self._wire)

    @abstractmethod
    def _wire(self) -> JSONObject: ...

    def _common(self, **members: object) -> JSONObject:
        """Return the members of all primitives and `members`, without those that are None."""
        meta = {**self.meta, **({TAGS_KEY: list(self.tags)} if self.tags else {})}
        entry = {
            "name": self.name,
            "title": None if self.title is None else str(self.title),
            "description": None if self.description is None else str(self.description),
            "icons": [icon.to_wire() for icon in self.icons] or None,
            "_meta": meta or None,
            **members,
        }
        return {name: value for name, value in entry.items() if value is not None}

    @abstractmethod
    def to_list_entry(self, revision: Revision) -> JSONObject:
        """Return the list entry in the form of `revision`."""


class ToolParameters(Protocol):
    """Arguments of a tool: their schema, check and conversion.

    `build_tool` compiles them from a function. Assign an object with these members to `Tool.parameters` if the schema
    comes from another source, or is built at its first use.
    """

    @property
    def schema(self) -> JSONObject:
        """JSON Schema for clients; its root is an object."""

    @property
    def header_params(self) -> tuple[HeaderParam, ...]:
        """Arguments that are mirrored into request headers."""

    def check(self, arguments: JSONObject) -> None:
        """Check JSON arguments against the schema. Raises ArgumentError."""

    def convert(self, arguments: JSONObject) -> dict[str, Any]:
        """Return checked arguments as new keyword arguments. Raises ArgumentError."""


class ToolOutput(Protocol):
    """Structured result of a tool: its schema and conversion.

    `build_tool` compiles it from a function. Assign an object with these members to `Tool.output` if the schema comes
    from another source.
    """

    @property
    def schema(self) -> JSONObject:
        """JSON Schema for clients; its root is an object."""

    @property
    def is_wrapped(self) -> bool:
        """True if the value is wrapped in an object under "result"."""

    def to_structured(self, value: object) -> Any:
        """Return a result as `structuredContent`. Raises OutputError if it does not fit."""


@dataclass(kw_only=True, eq=False)
class Tool(Primitive):
    """A function that a model may call (server/tools)."""

    kind: ClassVar[str] = "tool"

    parameters: ToolParameters
    output: ToolOutput | None = None
    """Structured result; None for a tool that returns content only."""
    annotations: ToolAnnotations | None = None
    single_use_state: bool = False
    """True if each `requestState` of its conversation is accepted only once."""
    scopes_for: ScopesFor | None = None
    """Function of the validated arguments that returns additionally required scopes."""
    rate: Rate | None = None
    """Maximum rate of calls by one principal."""
    max_result: int | None = None
    """Maximum size of a result in bytes; None for the server's limit."""
    task: TaskOptions | None = None
    """Options of its tasks; None if its calls never become tasks."""
    ui: UIOptions | None = None
    """App that shows its results, and visibility; None without both."""
    confirm: Confirmation = False
    """True if the handler lets the user confirm each call."""

    @cached_property
    def is_direct(self) -> bool:
        """True for an async handler without hooks and injection: the fast path."""
        return self.handler.is_async and self.handler.injected is None and not self.has_hooks

    @property
    def header_params(self) -> tuple[HeaderParam, ...]:
        """Arguments that HTTP clients mirror into `Mcp-Param-*` headers."""
        return self.parameters.header_params

    def get_converted_uris(self, convert: Callable[[str], str]) -> JSONObject:
        """Return the fields with URIs of its page, in the form of a server that mounts it."""
        return {"meta": convert_app_uris(self.meta, convert)} if self.meta else {}

    @cached_property
    def wire(self) -> JSONObject:
        """Complete list entry, with schemas that all clients take."""
        entry = call_in_default_language(self._wire)
        schemas = {"inputSchema": build_portable_input(entry["inputSchema"])}
        if "outputSchema" in entry:
            schemas["outputSchema"] = build_portable_output(entry["outputSchema"])
        return {**entry, **schemas}

    def _wire(self) -> JSONObject:
        return self._common(
            inputSchema=self.parameters.schema,
            outputSchema=None if self.output is None else self.output.schema,
            annotations=None if self.annotations is None else self.annotations.to_wire(),
        )

    def to_list_entry(self, revision: Revision) -> JSONObject:
        return revision.shape_tool(self.wire)


@dataclass(kw_only=True, eq=False)
class Resource(Primitive):
    """Data with a URI that a client may read (server/resources)."""

    kind: ClassVar[str] = "resource"

    uri: str
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    check_exists: bool = False
    """See `ResourceTemplate.check_exists`."""
    is_listed: bool = True
    """False for a resource that a provider derives from a template.

    A listed resource of another provider takes precedence over it.
    """
    follow: Callable[[Any, Callable[[], None]], Awaitable[Callable[[], None]]] | None = None
    """Function that subscribes to changes of a remote resource.

    It takes the Context of the subscriber and a callback. The callback runs on the running loop on each possible
    change. The function returns an unsubscribe function, once subscribed or after a timeout.
    """

    @property
    def key(self) -> str:
        return self.uri

    def _wire(self) -> JSONObject:
        annotations = None if self.annotations is None else self.annotations.to_wire()
        return {
            "uri": self.uri,
            **self._common(mimeType=self.mime_type, size=self.size, annotations=annotations),
        }

    def to_list_entry(self, revision: Revision) -> JSONObject:
        return revision.shape_resource(self.wire)


@dataclass(kw_only=True, eq=False)
class ResourceTemplate(Primitive):
    """A family of resources, by URI template (RFC 6570)."""

    kind: ClassVar[str] = "template"

    template: UriTemplate
    convert: Callable[[JSONObject], JSONObject]
    """Conversion of the variables to keyword arguments. Raises ArgumentError."""
    mime_type: str | None = None
    annotations: Annotations | None = None
    check_exists: bool = False
    """True if the handler decides whether a matching URI exists for the caller.

    The handler then runs before a subscription and before each update. Otherwise every matching URI exists.
    """

    @property
    def key(self) -> str:
        return self.template.text

    def _wire(self) -> JSONObject:
        annotations = None if self.annotations is None else self.annotations.to_wire()
        return {"uriTemplate": self.template.text, **self._common(mimeType=self.mime_type, annotations=annotations)}

    def to_list_entry(self, revision: Revision) -> JSONObject:
        return revision.shape_template(self.wire)


class TextParameters(Protocol):
    """Arguments of a prompt."""

    @property
    def arguments(self) -> list[JSONObject]:
        """Entries of the arguments in the list."""

    def convert(self, values: JSONObject) -> dict[str, Any]:
        """Convert texts to keyword arguments. Raises ArgumentError."""


@dataclass(kw_only=True, eq=False)
class Prompt(Primitive):
    """Opening messages of a conversation, to be selected by a user (server/prompts)."""

    kind: ClassVar[str] = "prompt"

    parameters: TextParameters

    def _wire(self) -> JSONObject:
        return self._common(arguments=self.parameters.arguments or None)

    def to_list_entry(self, revision: Revision) -> JSONObject:
        return revision.shape_prompt(self.wire)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completer:
    """Completion of a prompt argument or variable (server/utilities/completion)."""

    target: str
    """Name of the prompt or text of the template."""
    argument: str
    handler: Handler
    value: str = "value"
    """Parameter that takes the text typed so far."""
    takes_arguments: bool = False
    """True if the function takes the arguments chosen before, as `arguments`."""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """Suggested values, the best first; at most 100 are sent."""

    values: Sequence[str]
    total: int | None = None
    """Number of all matching values, if known."""
    has_more: bool | None = None


class MountNames(Protocol):
    """Names of primitives in a host, and their mapping back to the mounted server.

    `providers.prefixes.NamePrefixes` implements it. The methods towards the host raise DeclarationError for an invalid
    name. The methods towards the mounted server return None for a name of another source.
    """

    @property
    def keeps_uris(self) -> bool:
        """True if URIs stay unchanged."""

    def name(self, name: str, *, foreign: bool = False) -> str: ...

    def own_name(self, name: str) -> str | None: ...

    def uri(self, uri: str) -> str: ...

    def own_uri(self, uri: str) -> str | None: ...

    def template(self, template: UriTemplate) -> UriTemplate: ...


class MountView(Protocol):
    """A server mounted in a host, as `composition.mounting.MountedServer` implements it."""

    server: "Server"
    """The mounted server."""
    names: MountNames
    is_transparent: bool

    @property
    def copies(self) -> Mapping[Primitive | Completer, Primitive | Completer]: ...

    @property
    def rules_alias(self) -> str | None: ...

    def view_call(self, call: "Call") -> "Call": ...

    def to_host_uris(self, body: JSONObject) -> JSONObject: ...

    def to_host_uri(self, uri: str) -> str: ...


class MountOrigin(NamedTuple):
    """Mount and original of a copied primitive."""

    mount: MountView
    primitive: Primitive
    """Original in the mounted server."""

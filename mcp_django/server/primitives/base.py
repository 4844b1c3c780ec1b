"""Tools, resources, templates, prompts and completions: what a server offers, compiled at registration.

Everything that can be worked out from a function is worked out here, once; a call looks up, checks, converts and runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from mcp_django.protocol.headers import HeaderParam
from mcp_django.protocol.meta import TAGS
from mcp_django.protocol.revisions import Revision
from mcp_django.protocol.types import Annotations, Icon, ToolAnnotations
from mcp_django.protocol.uri import UriTemplate
from mcp_django.schema import natively
from mcp_django.server.injection.handler import Handler
from mcp_django.server.rates import Rate

if TYPE_CHECKING:
    from mcp_django.server.composition.mounting import Mounted
    from mcp_django.server.context.context import Context

ScopesFor = Callable[[dict[str, Any]], Any]
"""Returns scopes, or awaits them."""
Permission = str | Callable[[Any], Any] | Sequence[str | Callable[[Any], Any]]


def both(first: Permission | None, second: Permission | None) -> Permission | None:
    """The permission that asks for both."""
    if first is None or second is None:
        return second if first is None else first
    parts: list[Any] = []
    for permission in (first, second):
        parts.extend([permission] if isinstance(permission, str) or callable(permission) else permission)
    return tuple(parts)


@dataclass(kw_only=True, eq=False)
class Primitive(ABC):
    """What all primitives have in common."""

    kind: ClassVar[str]

    name: str
    title: str | None = None
    description: str | None = None
    icons: Sequence[Icon] = ()
    tags: Sequence[str] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    permission: Permission | None = None
    """A Django permission (`"app.codename"`), several, or a function of the principal. Without it the primitive is
    HIDDEN.
    """
    scopes: tuple[str, ...] = ()
    """The OAuth scopes it takes. Without them the client is told which to ask for."""
    stands_for: "Tool | None" = None
    """The tool that its handler passes its calls on to. Who may not see that does not see this either."""
    timeout: float | None = None
    """Seconds it may run; None for the server's default."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """For guards, interceptors and handlers; never on the wire."""
    guards: Sequence[Callable[..., Any]] = ()
    """Functions of the Context that are asked first; False stops the call."""
    interceptors: Sequence[Callable[..., Any]] = ()
    """Functions of the Context and of what runs inside them, the outermost first."""
    exception_handlers: Mapping[type[Exception], Callable[..., Any]] = field(default_factory=dict)
    """Functions of an exception and the Context, whose value is the result."""
    handler: Handler
    source: str = ""
    """Where it was declared, for messages about it."""
    mounted: "Mounted | None" = None
    """Where it comes from, if that is another server within this one."""

    @property
    def key(self) -> str:
        """What makes it unique among its kind, and what lists are ordered by."""
        return self.name

    @property
    def origin(self) -> "Primitive":
        """Itself, as the server knows it that it comes from."""
        return self if self.mounted is None else self.mounted.primitive.origin

    @property
    def is_guarded(self) -> bool:
        """Does anything stand around the handler?"""
        return bool(self.guards or self.interceptors or self.exception_handlers)

    @cached_property
    def wire(self) -> dict[str, Any]:
        """Its list entry in full; a revision leaves out what it does not define."""
        return natively(self._wire)

    @abstractmethod
    def _wire(self) -> dict[str, Any]: ...

    def _common(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": self.name}
        if self.title is not None:
            entry["title"] = str(self.title)
        if self.description is not None:
            entry["description"] = str(self.description)
        if self.icons:
            entry["icons"] = [icon.to_wire() for icon in self.icons]
        meta = {**self.meta, **({TAGS: list(self.tags)} if self.tags else {})}
        if meta:
            entry["_meta"] = meta
        return entry

    @abstractmethod
    def listed(self, revision: Revision) -> dict[str, Any]:
        """Its list entry as `revision` defines it."""


class ToolParameters(Protocol):
    """A tool's arguments: `schema.Parameters`, or what makes its schema at the first look."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema clients see; its root is an object."""

    @property
    def header_params(self) -> tuple[HeaderParam, ...]:
        """Arguments that are mirrored into request headers."""

    def check(self, arguments: dict[str, Any]) -> None:
        """Check JSON arguments against the schema. Raises ArgumentError."""

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Checked arguments as keyword arguments of the handler, in a new dict. Raises ArgumentError."""


class ToolOutput(Protocol):
    """A tool's structured result: `schema.Output`, or what makes its schema at the first look."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema clients see; its root is an object."""

    @property
    def wrapped(self) -> bool:
        """Is the value put under "result"?"""

    def structured(self, value: Any) -> Any:
        """A result as `structuredContent`. Raises OutputError when it does not fit the schema."""


@dataclass(kw_only=True, eq=False)
class Tool(Primitive):
    """Something a model may call (server/tools)."""

    kind: ClassVar[str] = "tool"

    parameters: ToolParameters
    output: ToolOutput | None = None
    """Its structured result; None when it returns content only."""
    annotations: ToolAnnotations | None = None
    single_use_state: bool = False
    """May each `requestState` of its questions be brought back only once?"""
    scopes_for: ScopesFor | None = None
    """A function of the arguments, which fit the schema: the scopes that these take besides."""
    rate: Rate | None = None
    """How often one principal may call it."""

    @cached_property
    def is_direct(self) -> bool:
        """An async handler that nothing stands around and that wants nothing injected: most tools, and the fast way."""
        return self.handler.is_async and self.handler.injected is None and not self.is_guarded

    @property
    def header_params(self) -> tuple[HeaderParam, ...]:
        """The arguments that HTTP clients mirror into `Mcp-Param-*` headers."""
        return self.parameters.header_params

    def _wire(self) -> dict[str, Any]:
        entry = self._common()
        entry["inputSchema"] = self.parameters.schema
        if self.output is not None:
            entry["outputSchema"] = self.output.schema
        if self.annotations is not None:
            entry["annotations"] = self.annotations.to_wire()
        return entry

    def listed(self, revision: Revision) -> dict[str, Any]:
        return revision.shape_tool(self.wire)


@dataclass(kw_only=True, eq=False)
class Resource(Primitive):
    """Something with a URI that a client may read (server/resources)."""

    kind: ClassVar[str] = "resource"

    uri: str
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    probe: bool = False
    """See ResourceTemplate."""
    is_listed: bool = True
    """False for what a provider has because a template fits the URI: it gives way to what is listed by another."""
    follow: "Callable[[Context, Callable[[], None]], Awaitable[Callable[[], None]]] | None" = None
    """Of a resource that is elsewhere: has the function called, on the running loop, when it has changed or may have,
    until what is returned is called. The Context is that of whoever listens. Returns once that holds, or after a while.
    """

    @property
    def key(self) -> str:
        return self.uri

    def _wire(self) -> dict[str, Any]:
        entry = {"uri": self.uri, **self._common()}
        if self.mime_type is not None:
            entry["mimeType"] = self.mime_type
        if self.size is not None:
            entry["size"] = self.size
        if self.annotations is not None:
            entry["annotations"] = self.annotations.to_wire()
        return entry

    def listed(self, revision: Revision) -> dict[str, Any]:
        return revision.shape_resource(self.wire)


@dataclass(kw_only=True, eq=False)
class ResourceTemplate(Primitive):
    """A family of resources, by URI template (RFC 6570)."""

    kind: ClassVar[str] = "template"

    template: UriTemplate
    convert: Callable[[dict[str, Any]], dict[str, Any]]
    """The template's variables to keyword arguments. Raises ArgumentError."""
    mime_type: str | None = None
    annotations: Annotations | None = None
    probe: bool = False
    """Is its handler run to find out whether a URI that fits stands for anything that the caller may read: before a
    subscription, and before each update? Otherwise every URI that fits does.
    """

    @property
    def key(self) -> str:
        return self.template.text

    def _wire(self) -> dict[str, Any]:
        entry = {"uriTemplate": self.template.text, **self._common()}
        if self.mime_type is not None:
            entry["mimeType"] = self.mime_type
        if self.annotations is not None:
            entry["annotations"] = self.annotations.to_wire()
        return entry

    def listed(self, revision: Revision) -> dict[str, Any]:
        return revision.shape_template(self.wire)


class TextParameters(Protocol):
    """A prompt's arguments."""

    @property
    def arguments(self) -> list[dict[str, Any]]:
        """Their entries in the list."""

    def convert(self, values: dict[str, Any]) -> dict[str, Any]:
        """Texts to keyword arguments. Raises ArgumentError."""


@dataclass(kw_only=True, eq=False)
class Prompt(Primitive):
    """A conversation's beginning that a user may pick (server/prompts)."""

    kind: ClassVar[str] = "prompt"

    parameters: TextParameters

    def _wire(self) -> dict[str, Any]:
        entry = self._common()
        if self.parameters.arguments:
            entry["arguments"] = self.parameters.arguments
        return entry

    def listed(self, revision: Revision) -> dict[str, Any]:
        return revision.shape_prompt(self.wire)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completer:
    """Completes one argument of a prompt, or one variable of a template (server/utilities/completion)."""

    target: str
    """A prompt's name or a template's text."""
    argument: str
    handler: Handler
    value: str = "value"
    """The parameter that takes the text typed so far."""
    takes_arguments: bool = False
    """Does the function want the arguments chosen before, as `arguments`?"""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """Suggested values, the best first; the first hundred are sent."""

    values: Sequence[str]
    total: int | None = None
    """How many there are in all, when known."""
    has_more: bool | None = None

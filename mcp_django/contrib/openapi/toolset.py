"""`OpenAPIToolset`: the operations of an OpenAPI document as tools and resources."""

import contextlib
import functools
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack
from urllib.parse import urlsplit
from weakref import WeakSet

from django.core.checks import CheckMessage, Error, register

from mcp_django.contrib.http_tools.generic import (
    OperationCatalog,
    OperationStyle,
    build_generic_tools,
    check_style,
)
from mcp_django.contrib.http_tools.operation_search import CatalogEntry
from mcp_django.contrib.openapi.document.document import DocumentSource, OpenAPIDocument, load_document
from mcp_django.contrib.openapi.document.names import build_tool_name, make_names_unique
from mcp_django.contrib.openapi.document.operations import OpenAPIOperation, iter_operations
from mcp_django.contrib.openapi.document.references import References
from mcp_django.contrib.openapi.document.routes import Route, select_operations
from mcp_django.contrib.openapi.document.servers import check_server, get_base_url
from mcp_django.contrib.openapi.requests.credentials import (
    CredentialsOption,
    OperationCredentials,
    read_schemes,
)
from mcp_django.contrib.openapi.requests.http import HTTPClientOption, RemoteTransport, is_httpx_auth, parse_base_url
from mcp_django.contrib.openapi.requests.in_process import View, ViewTransport
from mcp_django.contrib.openapi.requests.messages import OperationTransport
from mcp_django.contrib.openapi.tools import ExtraHeaders, OperationBuilder, OperationSender
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.primitives import (
    Completer,
    Permission,
    Primitive,
    Registry,
    Tool,
    Toolset,
    check_option_names,
    parse_timeout,
)
from mcp_django.extensions.schemas import call_in_default_language

DEFAULT_MAX_RESPONSE_BYTES = 4 * 1024 * 1024
"""Default maximum bytes of an answer."""
DEFAULT_TIMEOUT_SECONDS = 30.0
"""Default seconds for a request."""
DEFAULT_MAX_TOOLS = 1000
"""Default maximum of tools of one toolset."""
PrepareView = Callable[[View], View]
BUILDERS: "WeakSet[OperationBuilder]" = WeakSet()
"""Builders of operations whose tools are built at their first use."""
Declaration = tuple[Callable[[], Primitive | Completer], str]


class OpenAPIToolsetOptions(TypedDict, total=False):
    """Options that other toolsets set as class attributes of `Toolset`."""

    permission: Permission
    scopes: Sequence[str]
    tags: Sequence[str]
    guards: Sequence[Callable[..., Any]]
    interceptors: Sequence[Callable[..., Any]]
    exception_handlers: Mapping[type[Exception], Callable[..., Any]]
    metadata: Mapping[str, Any]
    style: OperationStyle
    max_tools: int


class OpenAPIToolset(Toolset):
    """The operations of a document, called over HTTP.

    `from_urlconf` and `from_ninja` call views of this project without HTTP.

        register(OpenAPIToolset("petstore.json", base_url="https://api.example.com", prefix="pets"))

    `source` is a dict, a text in JSON or YAML, the path of a file, or a function without arguments that returns one of
    these; OpenAPI 3.0 or 3.1. Requests go to `base_url`. It defaults to the document's first server, which must be an
    https URL; `variables` fill in its variables.

    `routes` are rules for operations. The first matching one decides, and the default is a tool. `deprecated` includes
    deprecated operations. `prefix` is prepended to all names, and is the scheme of the resources' URIs.

    `credentials` are the secrets for the document's security schemes. They are a mapping by scheme, a function of the
    Context that returns one (or a single secret), a function of the Context and a scheme's name, or an `httpx.Auth`.
    `headers` are sent with every request: a mapping, or a function of the Context.

    `timeout` is the seconds of a request, 30 by default. `max_size` is the maximum bytes of a decoded answer. At most
    `redirects` redirects of GET requests are followed, on the same origin. `http_client` is an `httpx.AsyncClient`, or
    a function that creates one for each event loop.

    `style="generic"` makes four tools for all operations, which find, describe and run them: `pets_search`,
    `pets_describe`, `pets_read` and `pets_call`. Without it, a document with more than `max_tools` operations is
    refused.

    The options of a `Toolset` (permission, scopes, tags, guards, …) apply to all operations, in addition to the routes.
    """

    style: OperationStyle = "per_operation"
    max_tools: int = DEFAULT_MAX_TOOLS

    def __init__(
        self,
        source: DocumentSource | Callable[[], Any],
        *,
        base_url: str | None = None,
        prefix: str = "",
        routes: Sequence[Route] = (),
        credentials: Any = None,
        headers: ExtraHeaders = None,
        timeout: float | None = None,
        max_size: int = DEFAULT_MAX_RESPONSE_BYTES,
        deprecated: bool = False,
        variables: Mapping[str, str] | None = None,
        redirects: int = 0,
        http_client: HTTPClientOption | None = None,
        **options: Unpack[OpenAPIToolsetOptions],
    ) -> None:
        """Validate the options, not the document. Raises DeclarationError."""
        self._set_options(options)
        self.prefix = f"{prefix.rstrip('_')}_" if prefix else ""
        self._timeout_seconds = parse_timeout(type(self), timeout)
        if max_size < 1:
            raise DeclarationError(f"{self._label}: max_size={max_size!r} must be a positive number of bytes")
        if base_url is not None:
            parse_base_url(base_url, self._label)

        self._source = source
        self._base_url = base_url
        self._variables = dict(variables or {})
        self._routes = tuple(routes)
        self._deprecated = deprecated
        self._credentials = credentials
        self._headers = headers
        self._max_size = max_size
        self._redirects = redirects
        self._client = http_client
        is_generic = check_style(self.style, self._label) == "generic"
        self._catalog = OperationCatalog(self.prefix) if is_generic else None
        self._view_options: Mapping[str, Any] | None = None
        self._transport: OperationTransport | None = None
        self._built_declarations: list[Declaration] | None = None

    @classmethod
    def from_urlconf(
        cls,
        source: DocumentSource | Callable[[], Any],
        *,
        root: str = "",
        prepare: PrepareView | None = None,
        **options: Any,
    ) -> "OpenAPIToolset":
        """Create a toolset for views of this project's URLconf below the path `root`.

        Views are called in this process, as the user of the call. The document is read after the project is loaded.
        `prepare` wraps each view before its call. The other options are those of the class, without those of HTTP
        requests.
        """
        made = cls(source, **options)
        made._use_views(root=root, **({} if prepare is None else {"prepare": prepare}))
        return made

    @classmethod
    def from_ninja(cls, api: Any, *, root: str = "", **options: Any) -> "OpenAPIToolset":
        """Create a toolset for a `ninja.NinjaAPI`, called like those of `from_urlconf`.

        The API is found in the URLconf by its namespace. Give `root`, the path of its URLs, if that path has arguments.
        Permissions are checked by django-ninja as over HTTP: `auth=django_auth` and its like get the user of the call.
        """
        namespace, make = getattr(api, "urls_namespace", None), getattr(api, "get_openapi_schema", None)
        if not isinstance(namespace, str) or not callable(make):
            raise DeclarationError(f"from_ninja() takes a NinjaAPI, not {api!r}")
        made = cls(lambda: make(path_prefix=""), **options)
        made._use_views(root=root, namespace=namespace, url_name="" if root else f"{namespace}:api-root")
        return made

    def _use_views(self, **view_options: Any) -> None:
        """Use views of this project. Raises DeclarationError for options of HTTP requests."""
        if self._base_url is not None or self._client is not None or is_httpx_auth(self._credentials):
            raise DeclarationError(f"{self._label}: base_url, http_client and httpx.Auth are for requests over HTTP")
        self._view_options = view_options
        self.is_deferred = True
        self.timeout = self._timeout_seconds

    def _set_options(self, options: OpenAPIToolsetOptions) -> None:
        check_option_names(self._label, options, OpenAPIToolsetOptions)
        for name, value in options.items():
            if name in ("scopes", "tags") and isinstance(value, str):
                raise DeclarationError(f"{self._label}: {name} is a list; write {name}=[{value!r}]")
            setattr(self, name, value)

    @property
    def _label(self) -> str:
        return type(self).__name__

    def _get_permission(self) -> Permission | None:
        return self.permission

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.prefix.rstrip('_')!r}>"

    def attach(self, registry: Registry) -> None:
        """Read the document. Raises DeclarationError for errors of the whole document.

        Errors of single operations are raised when they are built, and do not affect other operations.
        """
        if self._built_declarations is None:
            self._built_declarations = call_in_default_language(self._build_declarations, registry)

    def get_declarations(self) -> list[Declaration]:
        """Return the operations selected by the routes, and declarations of subclasses."""
        return [*(self._built_declarations or ()), *super().get_declarations()]

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Hold the connections of an event loop, and close them at its end."""
        if self._transport is not None:
            await self._transport.open()
        try:
            yield
        finally:
            if self._transport is not None:
                await self._transport.close()

    def _build_declarations(self, registry: Registry) -> list[Declaration]:
        source: Any = self._source
        document = load_document(source() if callable(source) else source, self._label)
        label = f"{self._label} of {document.title or document.name}"
        references = References(document.root)
        operations = list(iter_operations(document, references, label, registry.collect_errors))
        selected = select_operations(operations, self._routes, label, include_deprecated=self._deprecated)
        if self._catalog is None and len(selected) > self.max_tools:
            raise DeclarationError(
                f"{label}: {len(selected)} operations are exposed, and {self.max_tools} is the limit; leave some out "
                "with Route('…', expose=None), set style='generic', or raise max_tools"
            )
        base_url = self._find_base_url(document, label)
        selected = [pair for pair in selected if self._has_own_server(pair[0], base_url, label, registry)]
        requested_names = [
            (one, route.name or build_tool_name(one, self.prefix), route.name is not None) for one, route in selected
        ]
        names = make_names_unique(requested_names, label)
        sender = self._create_sender(document, references, base_url, label)

        paths_by_method = {one.method: [it.path for it in operations if it.method == one.method] for one, _ in selected}
        declarations: list[Declaration] = []
        for (operation, route), name in zip(selected, names, strict=True):
            source = f"{label}, {operation}"
            builder = OperationBuilder(operation, route, sender, references, source, paths_by_method[operation.method])
            if self._catalog is not None and route.expose == "tool":
                self._add_to_catalog(self._catalog, builder, name, registry)
                continue
            make = functools.partial(self._build_primitive, builder, name)
            declarations.append((functools.partial(self._build, make, None), source))
        return declarations if self._catalog is None else [*declarations, *self._declare_generic_tools(self._catalog)]

    def _add_to_catalog(
        self, catalog: OperationCatalog, builder: OperationBuilder, name: str, registry: Registry
    ) -> None:
        """Add the tool of an operation; an error of its declaration becomes a problem of the registry."""
        with registry.collect_errors(builder.source, (f"{self.prefix}{name}",)):
            make, operation = functools.partial(self._build_deferred_tool, builder, name), builder.operation
            tool: Any = call_in_default_language(self._build, make, None)
            catalog.add(CatalogEntry(tool, operation.method, operation.path, lambda: builder.output))
            BUILDERS.add(builder)

    def _build_deferred_tool(self, builder: OperationBuilder, name: str, _: None) -> Primitive:
        return builder.create_tool(name, self.prefix, is_deferred=True)

    def _declare_generic_tools(self, catalog: OperationCatalog) -> list[Declaration]:
        subject = self.prefix.rstrip("_") or "the API"
        tools = build_generic_tools(catalog, subject=subject, open_world=self._view_options is None)
        return [
            (functools.partial(self._build, functools.partial(_copy_tool, tool), None), tool.source) for tool in tools
        ]

    def _find_base_url(self, document: OpenAPIDocument, where: str) -> str:
        """Return the URL of the server; empty for views of this project."""
        if self._view_options is not None:
            return ""
        return self._base_url or get_base_url(document, self._variables, where)

    def _has_own_server(self, operation: OpenAPIOperation, base_url: str, where: str, registry: Registry) -> bool:
        """Return True unless the operation names another server, which becomes a problem of the registry."""
        is_own = self._view_options is not None or self._base_url is not None
        if not is_own:
            with registry.collect_errors(f"{where}, {operation}"):
                check_server(operation, base_url, self._variables, where)
                is_own = True
        return is_own

    def _create_sender(
        self, document: OpenAPIDocument, references: References, base_url: str, where: str
    ) -> OperationSender:
        schemes = read_schemes(document.root, references, where)
        given: CredentialsOption = None if is_httpx_auth(self._credentials) else self._credentials
        transport = self._transport = self._create_transport(base_url, where)
        return OperationSender(transport, OperationCredentials(given, schemes, where), self._headers)

    def _create_transport(self, base_url: str, where: str) -> OperationTransport:
        if self._view_options is not None:
            transport = ViewTransport(max_size=self._max_size, **self._view_options)
            transport.check(where)
            return transport

        auth = self._credentials if is_httpx_auth(self._credentials) else None
        return RemoteTransport(
            base_url,
            label=where,
            client=self._client,
            auth=auth,
            timeout=self._timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
            max_size=self._max_size,
            redirects=self._redirects,
        )

    def _build_primitive(self, builder: OperationBuilder, name: str, _: None) -> Primitive:
        if builder.route.expose == "resource":
            return builder.create_resource(f"{self.prefix}{name}", self._build_uri_scheme())
        return builder.create_tool(name, self.prefix)

    def _build_uri_scheme(self) -> str:
        """Return the scheme of the resources' URIs, made of the prefix or the host."""
        inside, host = self._view_options or {}, urlsplit(self._base_url or "").hostname
        origin = self.prefix or str(host or inside.get("namespace") or inside.get("root") or "api")
        plain = re.sub(r"[^a-z0-9+.\-]+", "-", origin.lower()).strip("-.+")
        return plain if plain[:1].isalpha() else f"api-{plain}".rstrip("-")


def _copy_tool(tool: Tool, _: None) -> Tool:
    return replace(tool)


@register
def check_deferred_operations(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check the operations of generic tools, whose arguments are built at their first use."""
    messages: list[CheckMessage] = []
    for builder in sorted(BUILDERS, key=lambda builder: builder.source):
        try:
            call_in_default_language(lambda builder=builder: builder.parameters)
        except DeclarationError as problem:
            messages.append(Error(str(problem), hint=problem.hint, id="mcp_django.E004"))
    return messages

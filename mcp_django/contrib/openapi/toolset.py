"""`OpenAPIToolset`: the operations of an OpenAPI document as tools and resources."""

import contextlib
import difflib
import functools
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack, get_type_hints
from urllib.parse import urlsplit

from mcp_django.contrib.openapi.document.document import Document, Source, read
from mcp_django.contrib.openapi.document.names import name_of, unique
from mcp_django.contrib.openapi.document.operations import Operation, operations_of
from mcp_django.contrib.openapi.document.references import References
from mcp_django.contrib.openapi.document.routes import Route, chosen
from mcp_django.contrib.openapi.document.servers import base_url_of
from mcp_django.contrib.openapi.requests.credentials import (
    Credentials,
    Given,
    alternatives_of,
    own_parameters,
    schemes_of,
)
from mcp_django.contrib.openapi.requests.http import Client, Web, base_of, is_auth
from mcp_django.contrib.openapi.requests.in_process import Inside, View
from mcp_django.contrib.openapi.requests.messages import Transport
from mcp_django.contrib.openapi.requests.operation_plan import plan_of
from mcp_django.contrib.openapi.tools import Extra, Maker, Sender
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives.base import Completer, Permission, Primitive
from mcp_django.server.primitives.decorators import timeout_of
from mcp_django.server.primitives.registry import Registry
from mcp_django.server.primitives.toolset import Toolset

MAX_SIZE = 4 * 1024 * 1024
"""Default maximum bytes of an answer."""
TIMEOUT = 30.0
"""Default seconds for a request."""
MAX_TOOLS = 1000
"""Maximum operations that one toolset may expose."""
Prepare = Callable[[View], View]
Declaration = tuple[Callable[[], Primitive | Completer], str]


class ToolsetOptions(TypedDict, total=False):
    """Options that other toolsets set as class attributes of `Toolset`."""

    permission: Permission
    scopes: Sequence[str]
    tags: Sequence[str]
    guards: Sequence[Callable[..., Any]]
    interceptors: Sequence[Callable[..., Any]]
    exception_handlers: Mapping[type[Exception], Callable[..., Any]]
    metadata: Mapping[str, Any]


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

    The options of a `Toolset` (permission, scopes, tags, guards, …) apply to all operations, in addition to the routes.
    """

    def __init__(
        self,
        source: Source | Callable[[], Any],
        *,
        base_url: str | None = None,
        prefix: str = "",
        routes: Sequence[Route] = (),
        credentials: Any = None,
        headers: Extra = None,
        timeout: float | None = None,
        max_size: int = MAX_SIZE,
        deprecated: bool = False,
        variables: Mapping[str, str] | None = None,
        redirects: int = 0,
        http_client: Client | None = None,
        **options: Unpack[ToolsetOptions],
    ) -> None:
        """Validate the options, not the document. Raises DeclarationError."""
        self._take(options)
        self.prefix = f"{prefix.rstrip('_')}_" if prefix else ""
        self._seconds = timeout_of(type(self), timeout)
        if max_size < 1:
            raise DeclarationError(f"{self._where}: max_size={max_size!r} must be a positive number of bytes")
        if base_url is not None:
            base_of(base_url, self._where)

        self._source, self._base_url, self._variables = source, base_url, dict(variables or {})
        self._routes, self._deprecated = tuple(routes), deprecated
        self._credentials, self._headers = credentials, headers
        self._max_size, self._redirects, self._client = max_size, redirects, http_client
        self._inside: Mapping[str, Any] | None = None
        self._transport: Transport | None = None
        self._made: list[Declaration] | None = None

    @classmethod
    def from_urlconf(
        cls, source: Source | Callable[[], Any], *, root: str = "", prepare: Prepare | None = None, **options: Any
    ) -> "OpenAPIToolset":
        """Create a toolset for views of this project's URLconf below the path `root`.

        Views are called in this process, as the user of the call. The document is read after the project is loaded.
        `prepare` wraps each view before its call. The other options are those of the class, without those of HTTP
        requests.
        """
        made = cls(source, **options)
        made._stay_inside(root=root, **({} if prepare is None else {"prepare": prepare}))
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
        made._stay_inside(root=root, namespace=namespace, named="" if root else f"{namespace}:api-root")
        return made

    def _stay_inside(self, **where: Any) -> None:
        """Use views of this project. Raises DeclarationError for options of HTTP requests."""
        if self._base_url is not None or self._client is not None or is_auth(self._credentials):
            raise DeclarationError(f"{self._where}: base_url, http_client and httpx.Auth are for requests over HTTP")
        self._inside, self.is_late = where, True
        self.timeout = self._seconds

    def _take(self, options: ToolsetOptions) -> None:
        known = get_type_hints(ToolsetOptions)
        # A misspelt `permission` must not open tools to all callers.
        for name in sorted(options.keys() - known.keys()):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DeclarationError(f"{self._where}: unknown option {name!r}{hint}")
        for name, value in options.items():
            if name in ("scopes", "tags") and isinstance(value, str):
                raise DeclarationError(f"{self._where}: {name} is a list; write {name}=[{value!r}]")
            setattr(self, name, value)

    @property
    def _where(self) -> str:
        return type(self).__name__

    def _permission(self) -> Permission | None:
        return self.permission

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.prefix.rstrip('_')!r}>"

    def attach(self, registry: Registry) -> None:
        """Read the document. Raises DeclarationError for errors of the whole document.

        Errors of single operations are raised when they are built, and do not affect other operations.
        """
        if self._made is None:
            self._made = self._operations()

    def declarations(self) -> list[Declaration]:
        """Return the operations selected by the routes, and declarations of subclasses."""
        return [*(self._made or ()), *super().declarations()]

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

    def _operations(self) -> list[Declaration]:
        document = self._document()
        where = f"{self._where} of {document.title or document.name}"
        references = References(document.root)
        every = list(operations_of(document, references, where))
        picked = chosen(every, self._routes, where, deprecated=self._deprecated)
        if len(picked) > MAX_TOOLS:
            raise DeclarationError(
                f"{where}: {len(picked)} operations are exposed, and {MAX_TOOLS} is the limit; leave some out with "
                "Route('…', expose=None)"
            )
        wanted = [(one, route.name or name_of(one, self.prefix), route.name is not None) for one, route in picked]
        names = unique(wanted, where)
        sender = self._sender(document, references, [one for one, _ in picked], where)

        others = {one.method: [it.path for it in every if it.method == one.method] for one, _ in picked}
        made: list[Declaration] = []
        for (operation, route), name in zip(picked, names, strict=True):
            source = f"{where}, {operation}"
            make = functools.partial(
                self._primitive, operation, route, name, sender, references, others[operation.method], source
            )
            made.append((functools.partial(self._build, make, None), source))
        return made

    def _document(self) -> Document:
        source: Any = self._source
        return read(source() if callable(source) else source, self._where)

    def _sender(self, document: Document, references: References, picked: Sequence[Operation], where: str) -> Sender:
        schemes = schemes_of(document.root, references, where)
        given: Given = None if is_auth(self._credentials) else self._credentials
        transport = self._transport = self._way(document, picked, where)
        return Sender(transport, Credentials(given, schemes, where), self._headers)

    def _way(self, document: Document, picked: Sequence[Operation], where: str) -> Transport:
        if self._inside is not None:
            inside = Inside(max_size=self._max_size, **self._inside)
            inside.check(where)
            return inside

        base_url = self._base_url or base_url_of(document, picked, self._variables, where)
        auth = self._credentials if is_auth(self._credentials) else None
        return Web(
            base_url,
            where=where,
            client=self._client,
            auth=auth,
            timeout=self._seconds or TIMEOUT,
            max_size=self._max_size,
            redirects=self._redirects,
        )

    def _primitive(self, *made_of: Any) -> Primitive:
        operation, route, name, sender, references, others, source, _ = made_of
        schemes = sender.credentials.schemes
        alternatives = alternatives_of(operation)
        plan = plan_of(
            operation,
            references,
            source,
            without=own_parameters(alternatives, schemes) | sender.own_headers,
            others=others,
        )
        maker = Maker(operation, route, plan, alternatives, sender, references, source)
        if route.expose == "resource":
            return maker.resource(f"{self.prefix}{name}", self._scheme())

        return maker.tool(name, self.prefix)

    def _scheme(self) -> str:
        """Return the scheme of the resources' URIs, made of the prefix or the host."""
        plain = re.sub(r"[^a-z0-9+.\-]+", "-", (self.prefix or self._host()).lower()).strip("-.+")
        return plain if plain[:1].isalpha() else f"api-{plain}".rstrip("-")

    def _host(self) -> str:
        inside = self._inside or {}
        return str(urlsplit(self._base_url or "").hostname or inside.get("namespace") or inside.get("root") or "api")

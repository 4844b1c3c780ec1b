"""Protected-resource metadata at its well-known URLs (RFC 9728, section 3).

Any client and any page may read it, because a client has no credential yet. The answer depends on the path and the
settings, never on the Host of a request.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from mcp_django import conf
from mcp_django.auth.protected.metadata import document
from mcp_django.auth.protected.registry import WELL_KNOWN, Resources
from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.headers import Headers
from mcp_django.transports.security import Pairs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

KEPT: Final = b"public, max-age=300"
LONGEST: Final = 2048
"""Maximum characters of a path to resolve."""
JSON: Final = (b"content-type", b"application/json")
ANYBODY: Final = (b"access-control-allow-origin", b"*")
METHODS: Final = b"GET, HEAD, OPTIONS"
PREFLIGHT: Final = (
    ANYBODY,
    (b"access-control-allow-methods", METHODS),
    (b"access-control-allow-headers", b"Authorization, Content-Type, MCP-Protocol-Version"),
    (b"access-control-max-age", b"600"),
    (b"allow", METHODS),
)
logger = logging.getLogger("mcp_django.auth")


class Answer(NamedTuple):
    """A complete HTTP response."""

    status: int
    body: bytes
    headers: Pairs


class WellKnown:
    """The metadata documents, for the ASGI app (`serve`) and as a Django view."""

    def __init__(self, resources: Callable[[], Resources]) -> None:
        self._resources = resources
        self.view = login_not_required(csrf_exempt(self._view))

    async def door(self, scope: Scope, path: str, send: Send) -> bool:
        """Answer a request below the well-known path; return False if no document exists."""
        answer = await _answer(self._resources(), scope["method"], path, Headers(scope["headers"]))
        if answer is None:
            return False
        await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.headers)})
        await send({"type": "http.response.body", "body": answer.body})
        return True

    async def _view(self, request: HttpRequest, /, path: str = "", **kwargs: Any) -> HttpResponseBase:
        headers = Headers(
            [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
        )
        answer = await _answer(self._resources(), request.method or "", path or "", headers)
        if answer is None:
            return HttpResponse(status=404, headers={"Access-Control-Allow-Origin": "*"})
        response = HttpResponse(answer.body, status=answer.status)
        del response["Content-Type"]
        for name, value in answer.headers:
            response[name.decode("latin-1")] = value.decode("latin-1")
        return response


async def _answer(resources: Resources, method: str, path: str, headers: Headers) -> Answer | None:
    # Functions of the project may query its database.
    found = await sync_to_async(_found, thread_sensitive=True)(resources, path, headers)
    if found is None:
        return None
    if method == "OPTIONS":
        return Answer(204, b"", PREFLIGHT)
    if method not in ("GET", "HEAD"):
        return Answer(405, b"", ((b"allow", METHODS), ANYBODY, (b"content-length", b"0")))
    status, body, kept = found
    length = (b"content-length", b"%d" % len(body))
    whole = (JSON, ANYBODY, (b"cache-control", kept), length)
    return Answer(status, b"" if method == "HEAD" else body, whole)


def _found(resources: Resources, path: str, headers: Headers) -> tuple[int, bytes, bytes] | None:
    """Find the status, the document and its Cache-Control."""
    if resources.origin is None or len(path) > LONGEST or not path.isprintable():
        return None
    if path in ("", "/"):
        alias = resources.only()
        place: tuple[str, Mapping[str, Any]] | None = resources.find("/") or ((alias, {}) if alias else None)
    else:
        place = None if "//" in path else resources.find(path)
    if place is None:
        return None
    alias, kwargs = place

    try:
        resource = resources.of(alias, AuthRequest(headers, kwargs=kwargs))
    except Exception:
        logger.exception("Protected-resource metadata of the server %r could not be built", alias)
        return 503, b'{"error":"temporarily_unavailable"}', b"no-store"
    if resource.uri is None or not resource.authorization_servers:
        return None
    server = conf.get_settings().servers.get(alias)
    name, extra = (alias, {}) if server is None else (server.title or server.name, server.resource_metadata)
    slash = len(path) > 1 and path.endswith("/")
    body = jsonrpc.dumps(document(resource, name=name, extra=extra, slash=slash))
    return 200, body, b"no-store" if resources.varies(alias) else KEPT


def below(path: str) -> str | None:
    """Return the part of a path after the well-known path; None for other paths."""
    if not path.startswith(WELL_KNOWN):
        return None
    rest = path.removeprefix(WELL_KNOWN)
    return rest if not rest or rest.startswith("/") else None

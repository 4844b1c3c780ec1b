"""Protected-resource metadata at its well-known URLs (RFC 9728, section 3).

Any client and any page may read it, because a client has no credential yet. The answer depends on the path and the
settings, never on the Host of a request.
"""

from collections.abc import Mapping
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from mcp_django import conf, wiring
from mcp_django.auth.protected.registry import WELL_KNOWN_PATH, ResourceRegistry, build_metadata
from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.log_text import get_logger
from mcp_django.transports.http.asgi import send_reply
from mcp_django.transports.http.django_view import build_response, exempt_view, read_headers
from mcp_django.transports.http.messages import JSON_TYPE, HTTPReply, Scope, Send

CACHE_CONTROL: Final = b"public, max-age=300"
MAX_PATH_CHARACTERS: Final = 2048
"""Maximum characters of a path to resolve."""
ALLOW_ANY_ORIGIN: Final = (b"access-control-allow-origin", b"*")
METHODS: Final = b"GET, HEAD, OPTIONS"
PREFLIGHT_HEADERS: Final = (
    ALLOW_ANY_ORIGIN,
    (b"access-control-allow-methods", METHODS),
    (b"access-control-allow-headers", b"Authorization, Content-Type, MCP-Protocol-Version"),
    (b"access-control-max-age", b"600"),
    (b"allow", METHODS),
)
logger = get_logger("mcp_django.auth")


class WellKnownEndpoint:
    """The metadata documents, for the ASGI app (`serve`) and as a Django view."""

    def __init__(self) -> None:
        self.view = exempt_view(self._view)

    async def serve(self, scope: Scope, path: str, send: Send) -> bool:
        """Answer a request below the well-known path; return False if no document exists."""
        answer = await _build_reply(scope["method"], path, Headers(scope["headers"]))
        if answer is None:
            return False
        await send_reply(send, answer)
        return True

    async def _view(self, request: HttpRequest, /, path: str = "", **kwargs: Any) -> HttpResponseBase:
        answer = await _build_reply(request.method or "", path or "", read_headers(request))
        if answer is None:
            return HttpResponse(status=404, headers={"Access-Control-Allow-Origin": "*"})
        return build_response(answer)


async def _build_reply(method: str, path: str, headers: Headers) -> HTTPReply | None:
    resources = wiring.get_services().resource_registry
    # Functions of the project may query its database.
    document = await sync_to_async(_find_document, thread_sensitive=True)(resources, path, headers)
    if document is None:
        return None
    if method == "OPTIONS":
        return HTTPReply(204, b"", PREFLIGHT_HEADERS)
    if method not in ("GET", "HEAD"):
        return HTTPReply(405, b"", ((b"allow", METHODS), ALLOW_ANY_ORIGIN, (b"content-length", b"0")))
    status, body, cache_control = document
    length = (b"content-length", b"%d" % len(body))
    reply_headers = (JSON_TYPE, ALLOW_ANY_ORIGIN, (b"cache-control", cache_control), length)
    return HTTPReply(status, b"" if method == "HEAD" else body, reply_headers)


def _find_document(resources: ResourceRegistry, path: str, headers: Headers) -> tuple[int, bytes, bytes] | None:
    """Find the status, the document and its Cache-Control."""
    if resources.origin is None or len(path) > MAX_PATH_CHARACTERS or not path.isprintable():
        return None
    if path in ("", "/"):
        alias = resources.find_only_server()
        match: tuple[str, Mapping[str, Any]] | None = resources.find_server("/") or ((alias, {}) if alias else None)
    else:
        match = None if "//" in path else resources.find_server(path)
    if match is None:
        return None
    alias, kwargs = match

    try:
        resource = resources.get(alias, AuthRequest(headers, kwargs=kwargs))
    except Exception:
        logger.exception("Protected-resource metadata of the server %r could not be built", alias)
        return 503, b'{"error":"temporarily_unavailable"}', b"no-store"
    if resource.uri is None or not resource.authorization_servers:
        return None
    server = conf.get_settings().servers.get(alias)
    name, extra = (alias, {}) if server is None else (server.title or server.name, server.resource_metadata)
    slash = len(path) > 1 and path.endswith("/")
    body = jsonrpc.dumps(build_metadata(resource, name=name, extra=extra, trailing_slash=slash))
    return 200, body, b"no-store" if resources.varies_by_request(alias) else CACHE_CONTROL


def get_well_known_path(path: str) -> str | None:
    """Return the part of a path after the well-known path; None for other paths."""
    if not path.startswith(WELL_KNOWN_PATH):
        return None
    rest = path.removeprefix(WELL_KNOWN_PATH)
    return rest if not rest or rest.startswith("/") else None

"""The Django request that a view of the project is given by a call: a real one, as a server would make it of HTTP.

Address, host and headers are those of the call, so that throttles count, links point and languages are chosen as for a
request of the same client over HTTP. What proves who asks is left out, because it was meant for this server and not for
the view. In its place stand values that tell callers apart and open nothing: views that are cached with
`Vary: Authorization` or `Vary: Cookie` keep a copy for each.
"""

import copy
import io
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.wsgi import WSGIRequest
from django.http import Http404, HttpRequest, HttpResponseBase
from django.http.multipartparser import MultiPartParserError
from django.urls import ResolverMatch, get_script_prefix
from django.utils.crypto import salted_hmac

from mcp_django import conf
from mcp_django.server.context.context import Context

PRINCIPAL = "mcp_django.principal"
"""The key of `request.META` under which a view finds the principal. No header has such a key."""
_REMEMBERED = ("_perm_cache", "_user_perm_cache", "_group_perm_cache")
_NOT_PASSED_ON = frozenset(
    f"HTTP_{name}"
    for name in (
        *("ACCEPT", "ACCEPT_ENCODING", "AUTHORIZATION", "CONNECTION", "CONTENT_ENCODING", "COOKIE", "EXPECT"),
        *("LAST_EVENT_ID", "ORIGIN", "PROXY_AUTHORIZATION", "RANGE", "REFERER", "TE", "TRANSFER_ENCODING", "UPGRADE"),
        *("X_CSRFTOKEN", "X_HTTP_METHOD_OVERRIDE"),
    )
)
_FAMILIES = ("HTTP_CONTENT_", "HTTP_IF_", "HTTP_MCP_", "HTTP_SEC_")
"""Headers about the message that carried the call, which the view's request is not."""
_ADDRESS = ("REMOTE_ADDR", "REMOTE_HOST", "REMOTE_PORT", "SERVER_NAME", "SERVER_PORT")
_SECURE = frozenset({"https", "wss"})
_OWN = frozenset({"auser", "body_receive_timeout", "path", "path_info", "resolver_match", "scope", "session", "user"})
"""What a call's request has for itself."""


@dataclass(frozen=True, slots=True)
class Body:
    """What a request carries."""

    content: bytes = b""
    content_type: str = ""
    disposition: str = ""
    """The header Content-Disposition, where a file is the whole body."""


def make_request(
    context: Context,
    method: str,
    path: str,
    query: str | Iterable[tuple[str, str]],
    body: Body,
    *,
    accept: str,
    host: str | None = None,
    match: ResolverMatch | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> HttpRequest:
    """A request for `path`, which stands below the script's prefix, by whoever the call is from.

    `query` is a query string, or its pairs before they are encoded. `headers` take the place of those of the call.
    """
    outer = context.request
    principal: Any = context.principal
    environ = {
        **_surroundings(outer, host),
        "REQUEST_METHOD": method.upper(),
        "SCRIPT_NAME": get_script_prefix().rstrip("/"),
        "PATH_INFO": path.encode().decode("latin-1"),
        "QUERY_STRING": query if isinstance(query, str) else urlencode(list(query)),
        "CONTENT_TYPE": body.content_type,
        "CONTENT_LENGTH": str(len(body.content)) if body.content_type else "",
        "HTTP_ACCEPT": accept,
        "wsgi.input": io.BytesIO(body.content),
        **_surrogates(principal.key),
        **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers},
        PRINCIPAL: principal,
    }
    if body.disposition:
        environ["HTTP_CONTENT_DISPOSITION"] = body.disposition
    request = WSGIRequest(environ)
    if match is not None:
        request.resolver_match = match
    _take_over(outer, request)
    _belongs_to(request, AnonymousUser() if principal.user is None else principal.user)
    return request


def _surroundings(outer: HttpRequest | None, host: str | None) -> dict[str, Any]:
    """What a server knows of a connection; of this machine where the call came without HTTP."""
    environ: dict[str, Any] = {
        "SERVER_NAME": _known_host(),
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    if outer is not None:
        meta: Mapping[str, Any] = outer.META
        environ |= {name: meta[name] for name in _ADDRESS if name in meta}
        environ |= {name: value for name, value in meta.items() if _is_passed_on(name)}
        environ["wsgi.url_scheme"] = "https" if outer.scheme in _SECURE else "http"
    if host:
        environ["HTTP_HOST"] = host
        environ.pop("HTTP_X_FORWARDED_HOST", None)
    return environ


def _is_passed_on(name: str) -> bool:
    return name.startswith("HTTP_") and name not in _NOT_PASSED_ON and not name.startswith(_FAMILIES)


def _known_host() -> str:
    """A host that the project answers to."""
    plain = [host.lstrip(".") for host in conf.allowed_hosts()]
    return next((host for host in plain if host and "*" not in host and ":" not in host), "localhost")


def _surrogates(key: str) -> dict[str, str]:
    """What stands for credentials: the same for the same caller, and of no use anywhere."""
    mark = salted_hmac("mcp_django.subrequests", key, algorithm="sha256").hexdigest()[:32]  # the salt outlives the name
    return {"HTTP_AUTHORIZATION": f"MCP {mark}", "HTTP_COOKIE": f"mcp={mark}"}


def _take_over(outer: HttpRequest | None, request: HttpRequest) -> None:
    """Put on the request what MIDDLEWARE put on the call's: a tenant, a site."""
    known = vars(request).keys() | _OWN
    for name, value in {} if outer is None else vars(outer).items():
        # What a class computes once (headers, COOKIES, GET) stands among the attributes, too, credentials included.
        computed = hasattr(type(request), name) or hasattr(type(outer), name)
        if name not in known and not computed and not name.startswith("_"):
            setattr(request, name, value)


def _belongs_to(request: HttpRequest, user: Any) -> None:
    async def auser() -> Any:
        return user

    request.user, request.auser = user, auser


def fresh(user: Any) -> Any:
    """The user as a request over HTTP would have it: nobody else's object, and without permissions remembered."""
    own = copy.copy(user)
    for name in _REMEMBERED:
        getattr(own, "__dict__", {}).pop(name, None)
    return own


def refusal(problem: Exception) -> tuple[int, str] | None:
    """The status that Django itself answers to an exception that leaves a view (`django.core.handlers.exception`), and
    words; None for a bug.

    The texts of what is suspicious are for the log.
    """
    match problem:
        case Http404():
            return 404, str(problem) or "Not found."
        case PermissionDenied():
            return 403, str(problem) or "Permission denied."
        case SuspiciousOperation() | BadRequest() | MultiPartParserError():
            return 400, "The request was refused as malformed or too large."
    return None


def close(response: HttpResponseBase | None, request: HttpRequest) -> None:
    """Close files. `response.close()` would also tell Django that a request of the server's is finished, and with that
    close connections of a thread that is not through with its call.
    """
    for closer in getattr(response, "_resource_closers", ()):
        closer()
    request.close()

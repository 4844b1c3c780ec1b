"""Internal Django requests: how a call invokes a view of the project.

Such a request equals one that a server would create from HTTP. Address, host and headers are those of the call, so that
throttling, links and languages work as for an HTTP request of the same client. The client's credentials are left out:
they were issued for this server, not for the view. Surrogate values replace them; they distinguish callers but grant no
access. Views cached with `Vary: Authorization` or `Vary: Cookie` thus keep one copy per caller.
"""

import copy
import io
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.wsgi import WSGIRequest
from django.http import Http404, HttpRequest, HttpResponseBase
from django.http.multipartparser import MultiPartParserError
from django.urls import ResolverMatch, get_script_prefix
from django.utils.crypto import salted_hmac

from mcp_django import conf
from mcp_django.server.context.context import Context

PRINCIPAL_META_KEY = "mcp_django.principal"
"""Key of the call's principal in `request.META`, for views. Header names cannot produce this key."""
_PERMISSION_CACHES = ("_perm_cache", "_user_perm_cache", "_group_perm_cache")
_EXCLUDED_HEADERS = frozenset(
    f"HTTP_{name}"
    for name in (
        *("ACCEPT", "ACCEPT_ENCODING", "AUTHORIZATION", "CONNECTION", "CONTENT_ENCODING", "COOKIE", "EXPECT"),
        *("LAST_EVENT_ID", "ORIGIN", "PROXY_AUTHORIZATION", "RANGE", "REFERER", "TE", "TRANSFER_ENCODING", "UPGRADE"),
        *("X_CSRFTOKEN", "X_HTTP_METHOD_OVERRIDE"),
    )
)
_EXCLUDED_HEADER_PREFIXES = ("HTTP_CONTENT_", "HTTP_IF_", "HTTP_MCP_", "HTTP_SEC_")
"""Prefixes of excluded headers, which describe the message of the call."""
_ADDRESS_KEYS = ("REMOTE_ADDR", "REMOTE_HOST", "REMOTE_PORT", "SERVER_NAME", "SERVER_PORT")
_SECURE_SCHEMES = frozenset({"https", "wss"})
_OWN_ATTRIBUTES = frozenset(
    {"auser", "body_receive_timeout", "path", "path_info", "resolver_match", "scope", "session", "user"}
)
"""Attributes that each request sets itself."""


@dataclass(frozen=True, slots=True)
class RequestContent:
    """Body of a request with its headers; a request without body has the defaults."""

    content: bytes = b""
    content_type: str = ""
    disposition: str = ""
    """Value of the Content-Disposition header, if the whole body is a file."""


def build_request(
    context: Context,
    method: str,
    path: str,
    query: str,
    body: RequestContent,
    *,
    accept: str,
    host: str | None = None,
    match: ResolverMatch | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> HttpRequest:
    """Return a request of the call's user for a view; close it with `close_response`.

    `path` is relative to the script prefix, and `query` is a query string. `host` replaces the host of the call.
    `match` becomes `request.resolver_match`. `headers` override those of the call, whose credentials are left out.
    """
    call_request = context.request
    principal: Any = context.principal
    environ = {
        **_build_environ(call_request, host),
        "REQUEST_METHOD": method.upper(),
        "SCRIPT_NAME": get_script_prefix().rstrip("/"),
        "PATH_INFO": path.encode().decode("latin-1"),
        "QUERY_STRING": query,
        "CONTENT_TYPE": body.content_type,
        "CONTENT_LENGTH": str(len(body.content)) if body.content_type else "",
        "HTTP_ACCEPT": accept,
        "wsgi.input": io.BytesIO(body.content),
        **_surrogate_credentials(principal.key),
        **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers},
        PRINCIPAL_META_KEY: principal,
    }
    if body.disposition:
        environ["HTTP_CONTENT_DISPOSITION"] = body.disposition

    request = WSGIRequest(environ)
    if match is not None:
        request.resolver_match = match
    _copy_attributes(call_request, request)
    _set_user(request, AnonymousUser() if principal.user is None else principal.user)
    return request


def _build_environ(call_request: HttpRequest | None, host: str | None) -> dict[str, Any]:
    """Return the WSGI environ of the call's connection; of this machine without HTTP."""
    environ: dict[str, Any] = {
        "SERVER_NAME": _get_default_host(),
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

    if call_request is not None:
        meta: Mapping[str, Any] = call_request.META
        environ |= {name: meta[name] for name in _ADDRESS_KEYS if name in meta}
        environ |= {name: value for name, value in meta.items() if _is_forwarded(name)}
        environ["wsgi.url_scheme"] = "https" if call_request.scheme in _SECURE_SCHEMES else "http"
    if host:
        environ["HTTP_HOST"] = host
        environ.pop("HTTP_X_FORWARDED_HOST", None)
    return environ


def _is_forwarded(name: str) -> bool:
    return name.startswith("HTTP_") and name not in _EXCLUDED_HEADERS and not name.startswith(_EXCLUDED_HEADER_PREFIXES)


def _get_default_host() -> str:
    """Return a host name that the project accepts."""
    plain = [host.lstrip(".") for host in conf.allowed_hosts()]
    return next((host for host in plain if host and "*" not in host and ":" not in host), "localhost")


def _surrogate_credentials(key: str) -> dict[str, str]:
    """Return surrogate credentials: constant for each caller, without any access."""
    # the salt keeps its former module name
    mark = salted_hmac("mcp_django.subrequests", key, algorithm="sha256").hexdigest()[:32]
    return {"HTTP_AUTHORIZATION": f"MCP {mark}", "HTTP_COOKIE": f"mcp={mark}"}


def _copy_attributes(call_request: HttpRequest | None, request: HttpRequest) -> None:
    """Copy the attributes set by MIDDLEWARE, such as a tenant or a site."""
    excluded = vars(request).keys() | _OWN_ATTRIBUTES
    for name, value in {} if call_request is None else vars(call_request).items():
        # Exclude cached properties (headers, COOKIES, GET): they are attributes too, and contain credentials.
        is_computed = hasattr(type(request), name) or hasattr(type(call_request), name)
        if name not in excluded and not is_computed and not name.startswith("_"):
            setattr(request, name, value)


def _set_user(request: HttpRequest, user: Any) -> None:
    async def auser() -> Any:
        return user

    request.user, request.auser = user, auser


def copy_user(user: Any) -> Any:
    """Return a copy of the user without cached permissions, as in an HTTP request."""
    user_copy = copy.copy(user)
    for name in _PERMISSION_CACHES:
        getattr(user_copy, "__dict__", {}).pop(name, None)
    return user_copy


def get_error_response(error: Exception) -> tuple[int, str] | None:
    """Return Django's status and a text for an exception of a view; None for a bug.

    The status is that of `django.core.handlers.exception`. The texts of suspicious operations are for the log only.
    """
    match error:
        case Http404():
            return 404, str(error) or "Not found."
        case PermissionDenied():
            return 403, str(error) or "Permission denied."
        case SuspiciousOperation() | BadRequest() | MultiPartParserError():
            return 400, "The request was refused as malformed or too large."
    return None


def close_response(response: HttpResponseBase | None, request: HttpRequest) -> None:
    """Close the files of a response and its request.

    `response.close()` would also send `request_finished`, and thereby close database connections of a thread that is
    still in use by its call.
    """
    for closer in getattr(response, "_resource_closers", ()):
        closer()
    request.close()

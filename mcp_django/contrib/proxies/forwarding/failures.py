"""Translation of errors of a remote server for the caller.

The caller receives the name of the proxy and a remedy, but no details of the server behind it. Messages of the remote
server go to the log.
"""

import logging
from typing import Any

from mcp_django.client.errors import (
    AuthorizationNeeded,
    CallError,
    CallTimeout,
    ClientConnectionError,
    ClientError,
    InvalidAnswer,
    ToolNotFound,
)
from mcp_django.protocol.errors import (
    InvalidParams,
    MissingClientCapability,
    ResourceNotFound,
    ToolError,
    URLElicitationRequired,
)
from mcp_django.server.calls.log_sanitizer import label
from mcp_django.server.client_requests.elicitation import is_address
from mcp_django.server.context.context import Context
from mcp_django.server.context.forwarding import supports

logger = logging.getLogger("mcp_django.client")

RESOURCE_NOT_FOUND, METHOD_NOT_FOUND, INVALID_PARAMS = -32002, -32601, -32602
MISSING_CAPABILITY, PAGES_FIRST = -32021, -32042
PAGES = 10
"""Maximum number of pages that a remote server may send a user to at once."""
_KNOWN = frozenset({"elicitation", "sampling", "roots"})


def told(problem: Exception, proxy: str, method: str, here: str, ctx: Context) -> Exception:
    """Return the exception for the client; `local_name` names the target."""
    if isinstance(problem, AuthorizationNeeded):
        return ToolError(needed(problem, proxy, ctx))
    if isinstance(problem, CallTimeout):
        return ToolError(f"The server {proxy!r} did not respond in time")
    if isinstance(problem, InvalidAnswer):
        _log(proxy, method, problem)
        return ToolError(f"The server {proxy!r} sent an invalid response")
    if isinstance(problem, CallError):
        return _refused(problem, proxy, method, here, ctx)
    if isinstance(problem, ClientConnectionError):
        logger.warning("Connection to the server %r failed for %s: %s", proxy, method, type(problem).__name__)
        return ToolError(f"The server {proxy!r} cannot be reached now; try again later")
    return ToolError(f"The server {proxy!r} cannot be used") if isinstance(problem, ClientError) else problem


def needed(problem: AuthorizationNeeded, proxy: str, ctx: Context) -> str:
    """Describe the authorization that is missing, with its URL if there is one."""
    url = problem.url
    if url is None:
        return f"{proxy!r} cannot be used for you: this site has no credential for you there"
    if url.startswith("/") and ctx.request is not None:
        url = ctx.request.build_absolute_uri(url)
    return f"This site is not authorized to use {proxy!r} for you. Open {url} to allow it, then call the tool again"


def unknown(method: str, here: str) -> Exception:
    """Return the same error as for a missing tool, prompt or resource."""
    if method == "resources/read":
        return ResourceNotFound(here)
    return InvalidParams(f"Unknown {'tool' if method == 'tools/call' else 'prompt'}: {here[:128]}")


def _refused(problem: CallError, proxy: str, method: str, here: str, ctx: Context) -> Exception:
    code = problem.code
    if isinstance(problem, ToolNotFound) or (method == "resources/read" and code in _MISSING):
        return unknown(method, here)
    if code == PAGES_FIRST and (pages := _pages(problem.data)):
        return URLElicitationRequired(pages)
    if code == MISSING_CAPABILITY and (required := _required(problem.data)) and not supports(ctx, required):
        return MissingClientCapability(required)
    _log(proxy, method, problem)
    if code == INVALID_PARAMS:
        return ToolError(f"The server {proxy!r} rejected the parameters")
    return ToolError(f"The server {proxy!r} answered with the error {code}")


_MISSING = (RESOURCE_NOT_FOUND, INVALID_PARAMS)


def _pages(data: Any) -> list[dict[str, Any]]:
    given = data.get("elicitations") if type(data) is dict else None
    pages = []
    for page in given[:PAGES] if type(given) is list else ():
        texts = [page.get(name) for name in ("message", "url", "elicitationId")] if type(page) is dict else [None]
        try:
            if all(type(text) is str for text in texts) and is_address(page["url"]):
                message, url, id = texts
                pages.append({"mode": "url", "message": message, "url": url, "elicitationId": id})
        except ValueError:
            continue
    return pages


def _required(data: Any) -> dict[str, Any]:
    given = data.get("requiredCapabilities") if type(data) is dict else None
    if type(given) is not dict or not given or not given.keys() <= _KNOWN:
        return {}
    return {name: {mode: {} for mode in value} for name, value in given.items() if type(value) is dict}


def _log(proxy: str, method: str, problem: CallError) -> None:
    logger.warning("Error from the server %r for %s: %d: %s", proxy, method, problem.code, label(str(problem)))

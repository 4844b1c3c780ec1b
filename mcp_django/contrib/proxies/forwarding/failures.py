"""Translation of errors of a remote server for the caller.

The caller receives the name of the proxy and a remedy, but no details of the server behind it. Messages of the remote
server go to the log.
"""

from typing import Any

from mcp_django.client import (
    AuthorizationNeeded,
    CallError,
    CallTimeout,
    ClientConnectionError,
    ClientError,
    InvalidAnswer,
    TaskCancelled,
    TaskNotFound,
    ToolNotFound,
)
from mcp_django.contrib.proxies.connections.questions import build_message
from mcp_django.extensions.calls import Context, get_logger, sanitize_label
from mcp_django.extensions.errors import (
    InvalidParams,
    MissingClientCapability,
    ResourceNotFound,
    ToolError,
    URLElicitationRequired,
)
from mcp_django.server.context.elicitation import is_absolute_url

logger = get_logger("mcp_django.client")

RESOURCE_NOT_FOUND, METHOD_NOT_FOUND, INVALID_PARAMS = -32002, -32601, -32602
MISSING_CAPABILITY, URL_ELICITATION_REQUIRED = -32021, -32042
MAX_PAGES = 10
"""Maximum number of pages that a remote server may send a user to at once."""
_CLIENT_CAPABILITIES = frozenset({"elicitation", "sampling", "roots"})


def translate_error(problem: Exception, proxy: str, method: str, local_name: str, ctx: Context) -> Exception:
    """Return the exception for the client; `local_name` names the target."""
    if isinstance(problem, AuthorizationNeeded):
        return ToolError(describe_authorization(problem, proxy, ctx))
    if isinstance(problem, CallTimeout):
        return ToolError(f"The server {proxy!r} did not respond in time")
    if isinstance(problem, TaskCancelled):
        return ToolError(f"The server {proxy!r} cancelled the call")
    if isinstance(problem, TaskNotFound):
        return ToolError(f"The server {proxy!r} has lost the call, or it took too long: its result is unknown")
    if isinstance(problem, InvalidAnswer):
        _log(proxy, method, problem)
        return ToolError(f"The server {proxy!r} sent an invalid response")
    if isinstance(problem, CallError):
        return _translate_call_error(problem, proxy, method, local_name, ctx)
    if isinstance(problem, ClientConnectionError):
        logger.warning("Connection to the server %r failed for %s: %s", proxy, method, type(problem).__name__)
        return ToolError(f"The server {proxy!r} cannot be reached now; try again later")
    return ToolError(f"The server {proxy!r} cannot be used") if isinstance(problem, ClientError) else problem


def describe_authorization(problem: AuthorizationNeeded, proxy: str, ctx: Context) -> str:
    """Describe the authorization that is missing, with its URL if there is one."""
    url = problem.url
    if url is None:
        return f"{proxy!r} cannot be used for you: this site has no credential for you there"
    if url.startswith("/") and ctx.request is not None:
        url = ctx.request.build_absolute_uri(url)
    return f"This site is not authorized to use {proxy!r} for you. Open {url} to allow it, then call the tool again"


def build_unknown_error(method: str, local_name: str) -> Exception:
    """Return the same error as for a missing tool, prompt or resource."""
    if method == "resources/read":
        return ResourceNotFound(local_name)
    return InvalidParams(f"Unknown {'tool' if method == 'tools/call' else 'prompt'}: {local_name[:128]}")


def _translate_call_error(problem: CallError, proxy: str, method: str, local_name: str, ctx: Context) -> Exception:
    code = problem.code
    if isinstance(problem, ToolNotFound) or (method == "resources/read" and code in _NOT_FOUND_CODES):
        return build_unknown_error(method, local_name)
    if code == URL_ELICITATION_REQUIRED and (pages := _read_pages(problem.data, proxy)):
        return URLElicitationRequired(pages)
    if (
        code == MISSING_CAPABILITY
        and (required := _read_required_capabilities(problem.data))
        and not ctx.call.supports(required)
    ):
        return MissingClientCapability(required)
    _log(proxy, method, problem)
    if code == INVALID_PARAMS:
        return ToolError(f"The server {proxy!r} rejected the parameters")
    return ToolError(f"The server {proxy!r} answered with the error {code}")


_NOT_FOUND_CODES = (RESOURCE_NOT_FOUND, INVALID_PARAMS)


def _read_pages(data: Any, proxy: str) -> list[dict[str, Any]]:
    given = data.get("elicitations") if type(data) is dict else None
    pages = []
    for page in given[:MAX_PAGES] if type(given) is list else ():
        texts = [page.get(name) for name in ("message", "url", "elicitationId")] if type(page) is dict else [None]
        try:
            if all(type(text) is str for text in texts) and is_absolute_url(page["url"]):
                message, url, id = map(str, texts)
                message = build_message(proxy, message)
                pages.append({"mode": "url", "message": message, "url": url, "elicitationId": id})
        except ValueError:
            continue
    return pages


def _read_required_capabilities(data: Any) -> dict[str, Any]:
    given = data.get("requiredCapabilities") if type(data) is dict else None
    if type(given) is not dict or not given or not given.keys() <= _CLIENT_CAPABILITIES:
        return {}
    return {name: {mode: {} for mode in value} for name, value in given.items() if type(value) is dict}


def _log(proxy: str, method: str, problem: CallError) -> None:
    logger.warning("Error from the server %r for %s: %d: %s", proxy, method, problem.code, sanitize_label(str(problem)))

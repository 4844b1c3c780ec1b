"""The reference of the errors: JSON-RPC codes, their classes, HTTP statuses and remedies."""

import inspect
from typing import Final

from mcp_django.protocol import errors
from mcp_django.protocol.errors import MCPError, ToolError
from scripts.reference.sources import MARK, escape_cell, write_docstring

PATH: Final = "errors.md"
REMEDIES: Final = {
    "ParseError": "Send one JSON object in UTF-8.",
    "InvalidRequest": "Send a message that the [revision](revisions.md) allows. The text names the wrong member.",
    "MethodNotFound": "Check the method's name, and the capabilities that the server declares.",
    "InvalidParams": "Correct the named parameter. An unknown name may also be hidden from the caller.",
    "ResourceNotFound": "Check the URI and the permissions of the caller. Earlier revisions use the code -32002.",
    "InternalError": "Search the server's log for the reference in the message.",
    "HeaderMismatch": "Send each header once, with the value that the body has. A proxy must not change it.",
    "MissingClientCapability": "Use a client with this capability, or a tool that does not need it.",
    "UnsupportedProtocolVersion": "Use one of the versions in `data.supported`.",
    "URLElicitationRequired": "Open the URLs in `data.elicitations`, then repeat the call.",
    "InsufficientScope": "Request the scopes in `data.requiredScopes` from the authorization server.",
}
"""Remedy for each class of protocol errors."""
HTTP_STATUSES: Final = (
    (
        400,
        "An invalid header, event id or subprotocol; no session id",
        "Read the body of the answer. It names the problem.",
    ),
    (401, "No credential, or an invalid one", "Log in again. `WWW-Authenticate` names the metadata."),
    (
        403,
        "Access is closed; a foreign `Host` or `Origin`; a missing scope",
        'Set `MCP["AUTH"]`, `ALLOWED_HOSTS` or `CSRF_TRUSTED_ORIGINS`.',
    ),
    (
        404,
        "An unknown session or stream; an unknown method (stateless era)",
        "Send `initialize` again. Clients do so by themselves.",
    ),
    (405, "A wrong HTTP method", "Use a method in `Allow`. GET needs ASGI and sessions."),
    (406, "`Accept` excludes the answer", "Accept `application/json` and `text/event-stream`."),
    (413, "A body over the limit `BODY`", "Send less, or raise the [limit](limits.md)."),
    (415, "A body that is not JSON", "Send `Content-Type: application/json`."),
    (429, "A [rate or a limit](limits.md) of one caller is reached", "Wait for `Retry-After` seconds."),
    (
        503,
        "A limit of the server is reached; the database is unavailable; a shutdown",
        "Wait for `Retry-After` seconds. Read the server's log.",
    ),
)
"""Status, causes and remedy of answers with an HTTP error."""


def list_protocol_errors() -> list[type[MCPError]]:
    """Return the classes of protocol errors, in the order of their codes."""
    found = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, MCPError)]
    return sorted((cls for cls in found if cls is not MCPError), key=lambda cls: (-cls.code, cls.__name__))


def render_errors() -> str:
    """Return the page."""
    lines = [
        "# Errors",
        "",
        MARK,
        "",
        "A call fails in one of three ways, and the client sees which one:",
        "",
        "- a *protocol error* is a JSON-RPC `error` with a code, for the client",
        "- a *tool error* is a result with `isError`, for the model",
        "- a *bug* is an internal error with a reference, and its text is in the server's log alone",
        "",
        "Each class is in `mcp_django.protocol.errors`. `MCPError` and `ToolError` are also in `mcp_django`.",
        "",
        "## Protocol errors",
        "",
        "The HTTP status is that of the stateless era. The handshake era answers a readable request with 200.",
        "",
        "| Code | Class | HTTP | Meaning | Remedy |",
        "|---|---|---|---|---|",
    ]
    for cls in list_protocol_errors():
        meaning = write_docstring(cls.__doc__).split("\n")[0]
        cells = (str(cls.code), f"`{cls.__name__}`", str(cls.http_status), meaning, REMEDIES[cls.__name__])
        lines.append("| " + " | ".join(map(escape_cell, cells)) + " |")

    lines += [
        "",
        "To send a code of your own, raise a subclass of `MCPError`. Its code is an integer outside -32768 to -32000.",
        "",
        "## Tool errors",
        "",
        "| Class | Meaning |",
        "|---|---|",
    ]
    for cls in (ToolError, errors.NotFound):
        lines.append(f"| `{cls.__name__}` | {escape_cell(' '.join(write_docstring(cls.__doc__).split()))} |")

    lines += [
        "",
        "Django's `ValidationError`, `PermissionDenied`, `Http404` and `ObjectDoesNotExist` become tool errors too.",
        "Any other exception is a bug. [Tools](../expose/tools.md) shows their use.",
        "",
        "## HTTP statuses",
        "",
        "| Status | Cause | Remedy |",
        "|---|---|---|",
        *(f"| {status} | {escape_cell(cause)} | {escape_cell(remedy)} |" for status, cause, remedy in HTTP_STATUSES),
        "",
        "[WebSocket](../run/websocket.md) lists the close codes, and [failures](../design/failures.md) every case.",
    ]
    return "\n".join(lines) + "\n"

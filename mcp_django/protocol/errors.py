"""Errors of the protocol, of tools, and of the transport.

    Exception
    ├── MCPError                        a JSON-RPC ``error`` object
    │   ├── ParseError                  -32700  400
    │   ├── InvalidRequest              -32600  400  (.request_id, when it was readable)
    │   ├── MethodNotFound              -32601  404
    │   ├── InvalidParams               -32602  400
    │   │   └── ResourceNotFound        code by revision (Revision.resource_not_found)
    │   ├── InternalError               -32603  200
    │   ├── HeaderMismatch              -32020  400
    │   ├── MissingClientCapability     -32021  400
    │   ├── UnsupportedProtocolVersion  -32022  400
    │   ├── URLElicitationRequired      -32042  200  (one revision only: Revision.url_elicitation_error)
    │   └── InsufficientScope           -32600  403
    ├── ToolError                       a tool result with ``isError``; its text is for the model
    └── TransportRefusal                an HTTP error response before a message exists

Any other exception is a bug; its text is never sent. An exception carries data only, and other modules convert it to a
response. ``http_status`` is the status of the stateless era. The handshake era responds with 200 once a request is
readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class MCPError(Exception):
    """An error that the peer receives as a JSON-RPC error.

    ``message`` is one short sentence for the peer. ``data`` is any JSON value, or None for no ``data`` member. A custom
    subclass sets ``code`` to an integer outside -32768…-32000.
    """

    code: int = -32603
    http_status: int = 200
    message: str = "Internal error"
    request_id: int | str | None = None
    """Id of the error response. None if the message had no id, or an unreadable one."""

    def __init__(self, message: str | None = None, *, data: Any = None) -> None:
        if message is not None:
            self.message = message
        super().__init__(self.message)
        self.data = data


class ParseError(MCPError, ValueError):
    """Bytes that are not JSON."""

    code = -32700
    http_status = 400
    message = "Parse error: the body is not valid JSON in UTF-8"


class InvalidRequest(MCPError):
    """Valid JSON, but not a message that this revision allows here."""

    code = -32600
    http_status = 400
    message = "Invalid request"

    def __init__(self, message: str | None = None, *, data: Any = None, request_id: int | str | None = None) -> None:
        super().__init__(message, data=data)
        self.request_id = request_id


class MethodNotFound(MCPError):
    """A method that the revision does not define, or an unsupported capability."""

    code = -32601
    http_status = 404
    message = "Method not found"


class InvalidParams(MCPError):
    """Missing or malformed parameters, or an unknown tool, prompt or cursor."""

    code = -32602
    http_status = 400
    message = "Invalid params"


class ResourceNotFound(InvalidParams):
    """A resource that does not exist for this caller.

    Encode with ``code=revision.resource_not_found``.
    """

    message = "Resource not found"

    def __init__(self, uri: str) -> None:
        super().__init__(data={"uri": uri})
        self.uri = uri


class InternalError(MCPError):
    """A fault of the server. Its message never contains the text of an exception."""

    code = -32603
    http_status = 200
    message = "Internal error"


class HeaderMismatch(MCPError):
    """A missing, malformed, repeated or different routing or parameter header."""

    code = -32020
    http_status = 400
    message = "Header mismatch"


class MissingClientCapability(MCPError):
    """A client capability that the server needs and the request did not declare.

    ``required`` is a ClientCapabilities object such as ``{"elicitation": {"url": {}}}``.
    """

    code = -32021
    http_status = 400
    message = "Missing required client capability"

    def __init__(self, required: Mapping[str, Any], message: str | None = None) -> None:
        self.required = dict(required)
        super().__init__(message, data={"requiredCapabilities": self.required})


class UnsupportedProtocolVersion(MCPError):
    """A request with an unsupported protocol version.

    ``requested`` is echoed unchanged.
    """

    code = -32022
    http_status = 400
    message = "Unsupported protocol version"

    def __init__(self, supported: Iterable[str], requested: Any) -> None:
        self.supported = list(supported)
        self.requested = requested
        super().__init__(data={"supported": self.supported, "requested": requested})


class URLElicitationRequired(MCPError):
    """A request that requires the user to visit the given URLs first.

    ``elicitations`` are url-mode parameters, each with ``mode``, ``message``, ``url`` and ``elicitationId``.
    """

    code = -32042
    http_status = 200
    message = "URL elicitation required"

    def __init__(self, elicitations: Iterable[Mapping[str, Any]], message: str | None = None) -> None:
        self.elicitations = [dict(item) for item in elicitations]
        super().__init__(message, data={"elicitations": self.elicitations})


class InsufficientScope(MCPError):
    """A valid credential that lacks scopes.

    Over HTTP, an ``insufficient_scope`` challenge is added.
    """

    code = -32600
    http_status = 403
    message = "Insufficient scope"

    def __init__(self, scopes: Iterable[str], message: str | None = None) -> None:
        self.scopes = tuple(scopes)
        super().__init__(message, data={"requiredScopes": list(self.scopes)})


class ToolError(Exception):
    """An error for the model, raised by a tool. It becomes a result with ``isError``.

    ``meta`` is the result's ``_meta``, for the program around the model.
    """

    meta: Mapping[str, Any] = {}

    def __init__(self, *args: object, meta: Mapping[str, Any] | None = None) -> None:
        super().__init__(*args)
        if meta:
            self.meta = dict(meta)


class NotFound(ToolError):
    """A missing object of a handler.

    When a resource raises it, the resource is not found.
    """


class TransportRefusal(Exception):
    """An HTTP error response without a message.

    Reasons are a wrong method, media type, Origin, size or credential. ``headers`` are pairs of lower-case name and
    value.
    """

    def __init__(self, status: int, headers: Iterable[tuple[bytes, bytes]] = (), body: bytes = b"") -> None:
        super().__init__(status)
        self.status = status
        self.headers = tuple(headers)
        self.body = body

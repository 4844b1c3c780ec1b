"""What the protocol can refuse, and the three kinds of failure that are never mixed.

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
    └── TransportRefusal                an HTTP refusal before there is a message to answer

Anything else that is raised is a bug; its text never reaches the wire. An exception carries its facts and does not know
how to become a response. ``http_status`` is the status of the stateless era; the handshake era answers 200 once a
request is readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class MCPError(Exception):
    """A refusal that the peer sees as a JSON-RPC error.

    ``message`` is one short sentence for the peer; ``data`` any JSON value, or None for no ``data`` member. A subclass
    of your own sets ``code`` to an integer outside -32768…-32000.
    """

    code: int = -32603
    http_status: int = 200
    message: str = "Internal error"
    request_id: int | str | None = None
    """The id to answer under; None when the message had none or it could not be read."""

    def __init__(self, message: str | None = None, *, data: Any = None) -> None:
        if message is not None:
            self.message = message
        super().__init__(self.message)
        self.data = data


class ParseError(MCPError):
    """The bytes are not JSON."""

    code = -32700
    http_status = 400
    message = "Parse error: the body is not valid JSON in UTF-8"


class InvalidRequest(MCPError):
    """JSON, but not a message this revision allows here."""

    code = -32600
    http_status = 400
    message = "Invalid request"

    def __init__(self, message: str | None = None, *, data: Any = None, request_id: int | str | None = None) -> None:
        super().__init__(message, data=data)
        self.request_id = request_id


class MethodNotFound(MCPError):
    """The revision does not define the method, or the server does not offer the capability behind it."""

    code = -32601
    http_status = 404
    message = "Method not found"


class InvalidParams(MCPError):
    """Missing or malformed parameters, an unknown tool, prompt or cursor."""

    code = -32602
    http_status = 400
    message = "Invalid params"


class ResourceNotFound(InvalidParams):
    """No such resource for this caller. Encode with ``code=revision.resource_not_found``."""

    message = "Resource not found"

    def __init__(self, uri: str) -> None:
        super().__init__(data={"uri": uri})
        self.uri = uri


class InternalError(MCPError):
    """A fault of the server. The message never comes from the exception behind it."""

    code = -32603
    http_status = 200
    message = "Internal error"


class HeaderMismatch(MCPError):
    """A routing or parameter header is missing, malformed, repeated, or differs from the body."""

    code = -32020
    http_status = 400
    message = "Header mismatch"


class MissingClientCapability(MCPError):
    """The request did not declare a capability that serving it needs.

    ``required`` is a ClientCapabilities object such as ``{"elicitation": {"url": {}}}``.
    """

    code = -32021
    http_status = 400
    message = "Missing required client capability"

    def __init__(self, required: Mapping[str, Any], message: str | None = None) -> None:
        self.required = dict(required)
        super().__init__(message, data={"requiredCapabilities": self.required})


class UnsupportedProtocolVersion(MCPError):
    """The request names a protocol version that is not served; ``requested`` is echoed as it came."""

    code = -32022
    http_status = 400
    message = "Unsupported protocol version"

    def __init__(self, supported: Iterable[str], requested: Any) -> None:
        self.supported = list(supported)
        self.requested = requested
        super().__init__(data={"supported": self.supported, "requested": requested})


class URLElicitationRequired(MCPError):
    """The request cannot go on before the user has visited the given URLs.

    ``elicitations`` are url-mode parameters, each with ``mode``, ``message``, ``url`` and ``elicitationId``.
    """

    code = -32042
    http_status = 200
    message = "URL elicitation required"

    def __init__(self, elicitations: Iterable[Mapping[str, Any]], message: str | None = None) -> None:
        self.elicitations = [dict(item) for item in elicitations]
        super().__init__(message, data={"elicitations": self.elicitations})


class InsufficientScope(MCPError):
    """The credential is good but lacks scopes. Over HTTP it goes with an ``insufficient_scope`` challenge."""

    code = -32600
    http_status = 403
    message = "Insufficient scope"

    def __init__(self, scopes: Iterable[str], message: str | None = None) -> None:
        self.scopes = tuple(scopes)
        super().__init__(message, data={"requiredScopes": list(self.scopes)})


class ToolError(Exception):
    """Raised by a tool to tell the model what went wrong; becomes a result with ``isError``.

    ``meta`` is the result's ``_meta``, for the program around the model.
    """

    meta: Mapping[str, Any] = {}

    def __init__(self, *args: object, meta: Mapping[str, Any] | None = None) -> None:
        super().__init__(*args)
        if meta:
            self.meta = dict(meta)


class NotFound(ToolError):
    """What a handler looked for is not there; a resource is not found then."""


class TransportRefusal(Exception):
    """An HTTP answer given before there is a message: wrong method, media type, Origin, size, credential.

    ``headers`` are pairs of lower-case name and value.
    """

    def __init__(self, status: int, headers: Iterable[tuple[bytes, bytes]] = (), body: bytes = b"") -> None:
        super().__init__(status)
        self.status = status
        self.headers = tuple(headers)
        self.body = body

"""Attributes of calls in OpenTelemetry's semantic conventions for the Model Context Protocol.

The conventions are those of https://github.com/open-telemetry/semantic-conventions-genai (`docs/gen-ai/mcp.md` at
0393513c). Spans and metrics share the attributes of this module. It needs no package of OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable

from mcp_django.protocol.errors import (
    HeaderMismatch,
    InvalidParams,
    InvalidRequest,
    MCPError,
    MethodNotFound,
    MissingClientCapability,
    ParseError,
    UnsupportedProtocolVersion,
    URLElicitationRequired,
)
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.server.calls.call import Call, NetworkInfo
from mcp_django.server.ports import Outcome

AddressFunction = Callable[[str | None, Headers | None], str | None]
"""Function that returns the address of a client, or None if it is unknown.

Its arguments are the address of the peer, and the headers.
"""
TARGET_ATTRIBUTES = {
    "tools/call": "gen_ai.tool.name",
    "prompts/get": "gen_ai.prompt.name",
    "resources/read": "mcp.resource.uri",
    "resources/subscribe": "mcp.resource.uri",
    "resources/unsubscribe": "mcp.resource.uri",
}
UNKNOWN_METHOD = "_OTHER"
TOOL_ERROR = "tool_error"
"""Value of `error.type` for a tool result with `isError`."""
CLIENT_ERROR_CODES = frozenset(
    {
        *(error.code for error in (ParseError, InvalidRequest, MethodNotFound, InvalidParams)),
        *(error.code for error in (HeaderMismatch, MissingClientCapability, UnsupportedProtocolVersion)),
        *(revision.resource_not_found for revision in REVISIONS.values()),
        URLElicitationRequired.code,
    }
)
"""Codes of errors that the client caused, or has to act on. They are no errors of the server."""
_SUCCESS_OUTCOMES = frozenset({Outcome.OK, Outcome.INPUT_REQUIRED, Outcome.CANCELLED})


def get_method_name(call: Call) -> str:
    """Return the method of a call, or `_OTHER` for one that no extension and no revision defines."""
    is_known = call.method in call.revision.methods or call.method in call.server.extensions.methods
    return call.method if is_known else UNKNOWN_METHOD


def get_error_type(outcome: Outcome, code: int | None) -> str | None:
    """Return the `error.type` of a server operation; None if the server did not fail."""
    if outcome in _SUCCESS_OUTCOMES or code in CLIENT_ERROR_CODES:
        return None
    return TOOL_ERROR if code is None else str(code)


def get_network_attributes(network: NetworkInfo | None) -> dict[str, str]:
    """Return the attributes of a transport, without addresses."""
    if network is None:
        return {}
    attributes = {
        "network.transport": network.transport,
        "network.protocol.name": network.protocol,
        "network.protocol.version": network.version,
    }
    return {name: text for name, text in attributes.items() if text is not None}


def get_client_attributes(call: Call, get_address: AddressFunction | None) -> dict[str, str | int]:
    """Return the address of the client, and its port unless a proxy hides it."""
    network = call.connection.network
    if network is None or get_address is None:
        return {}
    address = get_address(network.peer, call.connection.headers)
    if address is None:
        return {}
    has_port = address == network.peer and network.port is not None
    return {"client.address": address, **({"client.port": network.port or 0} if has_port else {})}


def get_error_description(error: BaseException | None) -> str | None:
    """Return the text of a JSON-RPC error, which the client received as well."""
    return error.message if isinstance(error, MCPError) else None

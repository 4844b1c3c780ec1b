"""Negotiation of the protocol revision: stateless era first, then handshake."""

import mcp_types as types
from mcp import MCPError
from mcp.client.session import ClientSession

from mcp_django.client.errors import HandshakeError
from mcp_django.client.options import ClientOptions
from mcp_django.protocol.revisions import HANDSHAKE_VERSIONS, Era


async def negotiate(session: ClientSession, options: ClientOptions) -> None:
    """Negotiate a revision by `server/discover` or `initialize`, as the options allow.

    Raises:
        MCPError: The server refused.
        HandshakeError: The server supports another revision than the required one.
        ValueError, RuntimeError: The response is invalid.
    """
    if options.eras == (Era.HANDSHAKE,):
        await session.initialize()
    elif options.eras == (Era.STATELESS,):
        await session.discover()
    else:
        await _negotiate_either_era(session)
    if options.revision is not None and session.protocol_version != options.revision.version:
        raise HandshakeError(f"{options.server_label} does not support the revision {options.revision.version}")


async def _negotiate_either_era(session: ClientSession) -> None:
    try:
        await session.discover()
    except MCPError as error:
        if error.code == types.UNSUPPORTED_PROTOCOL_VERSION and not _allows_handshake(error):
            raise
    except (ValueError, RuntimeError):
        pass  # invalid response, or only revisions of the other era
    else:
        return

    try:
        await session.initialize()
    except MCPError as error:
        # A slowly starting server may have processed the discover request after its timeout.
        if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


def _allows_handshake(error: MCPError) -> bool:
    """Return True if the error lists a handshake revision, or none at all."""
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return not isinstance(supported, list) or any(version in HANDSHAKE_VERSIONS for version in supported)

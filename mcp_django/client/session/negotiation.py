"""How a client and a server agree on a revision: the stateless era is tried first, then the handshake."""

import mcp_types as types
from mcp import MCPError
from mcp.client.session import ClientSession

from mcp_django.client.errors import HandshakeError
from mcp_django.client.options import Options
from mcp_django.protocol.revisions import HANDSHAKE, Era


async def agree(session: ClientSession, options: Options) -> None:
    """Discover or initialize, whichever the server knows and the options allow.

    Raises:
        MCPError: The server refused.
        HandshakeError: It speaks another revision than the one that the options name.
        ValueError, RuntimeError: What it said makes no sense.
    """
    if options.eras == (Era.HANDSHAKE,):
        await session.initialize()
    elif options.eras == (Era.STATELESS,):
        await session.discover()
    else:
        await _probe(session)
    if options.revision is not None and session.protocol_version != options.revision.version:
        raise HandshakeError(f"{options.name} does not speak the revision {options.revision.version}")


async def _probe(session: ClientSession) -> None:
    try:
        await session.discover()
    except MCPError as error:
        if error.code == types.UNSUPPORTED_PROTOCOL_VERSION and not _has_handshake(error):
            raise
    except (ValueError, RuntimeError):
        pass  # an answer that is none, or one that names revisions of the other era only
    else:
        return
    try:
        await session.initialize()
    except MCPError as error:
        # A server that starts slowly may have understood the probe after it was given up.
        if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


def _has_handshake(error: MCPError) -> bool:
    """Does the refusal leave the handshake open? What names no revisions does."""
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return not isinstance(supported, list) or any(version in HANDSHAKE for version in supported)

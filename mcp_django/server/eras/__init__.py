"""The two eras of the protocol as two strategies, and the choice between them."""

from typing import Any

from mcp_django.protocol.meta import PROTOCOL_VERSION
from mcp_django.protocol.revisions import REVISIONS, Era

STATELESS, HANDSHAKE = Era.STATELESS, Era.HANDSHAKE


def select(version: str | None, raw: Any) -> Era:
    """Select the era of a message by its version header and its `_meta`.

    `version` is None without the header. Neither the method nor a session id matters: `initialize` in a stateless
    envelope is a stateless request for an unknown method (basic/versioning).
    """
    stated = None
    if type(raw) is dict:
        params = raw.get("params")
        meta = params.get("_meta") if type(params) is dict else None
        stated = meta.get(PROTOCOL_VERSION) if type(meta) is dict else None
    if version is None:
        return HANDSHAKE if stated is None else STATELESS
    named = REVISIONS.get(version)
    if named is None or named.era is STATELESS:
        return STATELESS
    known = REVISIONS.get(stated) if type(stated) is str else None
    return STATELESS if stated is not None and (known is None or known.era is STATELESS) else HANDSHAKE

"""The two eras of the protocol as two strategies, and the choice between them."""

from mcp_django.protocol.meta import PROTOCOL_VERSION
from mcp_django.protocol.revisions import REVISIONS, Era

STATELESS, HANDSHAKE = Era.STATELESS, Era.HANDSHAKE


def select_era(version: str | None, raw: object) -> Era:
    """Select the era of a message by its version header and its `_meta`.

    `version` is None without the header. Neither the method nor a session id matters: `initialize` in a stateless
    envelope is a stateless request for an unknown method (basic/versioning).
    """
    declared = None
    if type(raw) is dict:
        params = raw.get("params")
        meta = params.get("_meta") if type(params) is dict else None
        declared = meta.get(PROTOCOL_VERSION) if type(meta) is dict else None
    if version is None:
        return HANDSHAKE if declared is None else STATELESS
    header_revision = REVISIONS.get(version)
    if header_revision is None or header_revision.era is STATELESS:
        return STATELESS
    declared_revision = REVISIONS.get(declared) if type(declared) is str else None
    return (
        STATELESS
        if declared is not None and (declared_revision is None or declared_revision.era is STATELESS)
        else HANDSHAKE
    )

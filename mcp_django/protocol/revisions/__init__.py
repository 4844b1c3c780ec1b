"""The five revisions of the protocol as data, oldest first.

The date of a revision appears in code only in this package. It is pure, like the rest of ``protocol``. Read the fields
of a `Revision`; never compare version strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcp_django.protocol.revisions.base import Era, Revision
from mcp_django.protocol.revisions.v2024_11_05 import V2024_11_05
from mcp_django.protocol.revisions.v2025_03_26 import V2025_03_26
from mcp_django.protocol.revisions.v2025_06_18 import V2025_06_18
from mcp_django.protocol.revisions.v2025_11_25 import V2025_11_25
from mcp_django.protocol.revisions.v2026_07_28 import V2026_07_28

__all__ = [
    "ASSUMED_REVISION",
    "HANDSHAKE_VERSIONS",
    "LATEST",
    "LATEST_HANDSHAKE",
    "REVISIONS",
    "STATELESS_VERSIONS",
    "Era",
    "Revision",
    "can_notify",
    "negotiate",
]

REVISIONS: dict[str, Revision] = {
    revision.version: revision for revision in (V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28)
}
HANDSHAKE_VERSIONS: list[str] = [version for version, revision in REVISIONS.items() if revision.era is Era.HANDSHAKE]
STATELESS_VERSIONS: list[str] = [version for version, revision in REVISIONS.items() if revision.era is Era.STATELESS]

LATEST_HANDSHAKE: Revision = REVISIONS[HANDSHAKE_VERSIONS[-1]]
LATEST: Revision = REVISIONS[STATELESS_VERSIONS[-1]]
ASSUMED_REVISION: Revision = V2025_03_26
"""Revision of a handshake-era HTTP request without a session and a version header."""


def negotiate(requested: Any, offered: Sequence[str] = HANDSHAKE_VERSIONS) -> Revision:
    """Negotiate the revision of ``initialize``.

    It is the requested one if offered, else the newest offered one. Only handshake-era revisions are negotiable, so
    other revisions in `offered` are ignored.

    Raises:
        ValueError: `offered` has no handshake-era revision.
    """
    choices = [version for version in HANDSHAKE_VERSIONS if version in offered]
    if not choices:
        raise ValueError("no revision of the handshake era is offered")
    return REVISIONS[requested if isinstance(requested, str) and requested in choices else choices[-1]]


def can_notify(revision: Revision, method: str) -> bool:
    """Return True if a server may send this notification under `revision`.

    The revision must define it. A notification that no revision defines is custom, and allowed too.
    """
    return method in revision.notifications or not any(method in other.notifications for other in REVISIONS.values())

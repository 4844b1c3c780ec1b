"""The five revisions as data, oldest first. A revision's date appears in code only in this package.

Pure, like the rest of ``protocol``. Ask a `Revision` what it allows; never compare version strings.
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
    "ASSUMED",
    "HANDSHAKE",
    "LATEST",
    "LATEST_HANDSHAKE",
    "REVISIONS",
    "STATELESS",
    "Era",
    "Revision",
    "may_notify",
    "negotiate",
]

REVISIONS: dict[str, Revision] = {
    revision.version: revision for revision in (V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28)
}
HANDSHAKE: list[str] = [version for version, revision in REVISIONS.items() if revision.era is Era.HANDSHAKE]
STATELESS: list[str] = [version for version, revision in REVISIONS.items() if revision.era is Era.STATELESS]

LATEST_HANDSHAKE: Revision = REVISIONS[HANDSHAKE[-1]]
LATEST: Revision = REVISIONS[STATELESS[-1]]
ASSUMED: Revision = V2025_03_26
"""What a handshake-era HTTP request speaks that has neither a session nor a version header."""


def negotiate(wanted: Any, offered: Sequence[str] = HANDSHAKE) -> Revision:
    """Agree on a revision in ``initialize``: the wanted one if offered, else the newest offered as a counter-offer.

    Only handshake-era revisions can be agreed on; others in `offered` are passed over.

    Raises:
        ValueError: `offered` has no handshake-era revision.
    """
    choices = [version for version in HANDSHAKE if version in offered]
    if not choices:
        raise ValueError("no revision of the handshake era is offered")
    return REVISIONS[wanted if isinstance(wanted, str) and wanted in choices else choices[-1]]


def may_notify(revision: Revision, method: str) -> bool:
    """Whether a server may send this notification under `revision`: the revision defines it, or none does, so that it
    is the project's own.
    """
    return method in revision.notifications or not any(method in other.notifications for other in REVISIONS.values())

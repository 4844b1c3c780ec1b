"""Principals whose credentials this process verified recently, for the admin.

Clients of the stateless era have no session, so verifications are the only trace that they leave. A verification is
recorded, not a call: a verified credential is trusted for TOKEN_CACHE_SECONDS. `take` empties the record, for a report
that all processes can read.
"""

import threading
from typing import Any, Final, NamedTuple

from mcp_django.auth.principal import DjangoPrincipal

MAX_RECORDED_PRINCIPALS: Final = 500
"""Maximum number of principals in one report. Further ones are left out of it."""


class ActivePrincipal(NamedTuple):
    """Principal that used a server, without its credential."""

    server: str
    key: str
    client_id: str
    user_pk: str | None
    kind: str


class ActivePrincipals:
    """Record of verified principals. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recorded: set[ActivePrincipal] = set()

    def record(self, server: str, principal: DjangoPrincipal) -> None:
        """Record a principal whose credential was verified for `server`."""
        pk: Any = getattr(principal.user, "pk", None)
        active = ActivePrincipal(
            server, principal.key, principal.client_id, None if pk is None else str(pk), principal.kind
        )
        with self._lock:
            if len(self._recorded) < MAX_RECORDED_PRINCIPALS:
                self._recorded.add(active)

    def take(self) -> list[ActivePrincipal]:
        """Return the recorded principals and empty the record."""
        with self._lock:
            recorded = self._recorded
            self._recorded = set()
        return sorted(recorded, key=lambda active: (active.server, active.key))


ACTIVE_PRINCIPALS: Final = ActivePrincipals()

"""Sessions in memory, for views that expect `request.session`.

    expose(OrderViewSet, prepare=add_session)

A call has no session of its own: its client logged in with a credential, not with a cookie. So a view gets a session
only if the project asks for one. It is empty, and ends with the call.
"""

from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest

from mcp_django.extensions.schemas import JSONObject


class MemorySession(SessionBase):
    """Session that is never stored; it has no key."""

    def exists(self, session_key: str) -> bool:
        """Return False: no session is stored."""
        return False

    def create(self) -> None:
        """Keep the session, which has no key."""

    def save(self, must_create: bool = False) -> None:
        """Keep the data in memory."""

    def delete(self, session_key: str | None = None) -> None:
        """Delete nothing, because no session is stored."""

    def load(self) -> JSONObject:
        """Return the data of a new session."""
        return {}

    @classmethod
    def clear_expired(cls) -> None:
        """Delete nothing, because no session is stored."""


def add_session(request: HttpRequest) -> None:
    """Add an empty session to a request, for the option `prepare` of `expose`."""
    request.session = MemorySession()

"""`POST <path>/ws-ticket`: a page with a credential gets a ticket, with which it opens a socket (`auth/tickets.py`)."""

from django.db import Error

from ...auth.authenticate import Authenticator
from ...auth.tickets import LIFETIME
from ...protocol import jsonrpc
from ...protocol.errors import TransportRefusal
from ...server.ports import Overloaded
from ..guards import Guard
from .sides import JSON_TYPE, NO_STORE, HTTPLimits, Reply, Request, overloaded, refused

PATH = "ws-ticket"
"""Below the path of the endpoint."""
METHODS = b"POST, OPTIONS"
NO_NEED = b"Callers of this machine need no ticket."


class TicketDesk:
    """The tickets of one server."""

    def __init__(self, authenticator: Authenticator, guard: Guard, limits: HTTPLimits) -> None:
        self._authenticator, self._guard, self.limits = authenticator, guard, limits

    async def handle(self, request: Request) -> Reply:
        """The ticket, or why there is none."""
        headers = request.headers
        try:
            self._guard.check(headers)
            if request.method == "OPTIONS":
                return Reply(204, b"", self._guard.preflight(headers, METHODS))
            if request.method != "POST":
                raise TransportRefusal(405, [(b"allow", METHODS)])
            asked = request.asked()
            principal = self._authenticator.known(asked) or await self._authenticator.admit(asked)
            if principal.is_local:
                raise TransportRefusal(404, body=NO_NEED)
            body = jsonrpc.dumps({"ticket": self._authenticator.ticket(asked), "expires_in": int(LIFETIME)})
            return Reply(200, body, (JSON_TYPE, NO_STORE, *self._guard.cors(headers)))
        except TransportRefusal as refusal:
            return refused(refusal, self._guard.cors(headers))
        except (Overloaded, Error) as problem:
            busy = problem if isinstance(problem, Overloaded) else Overloaded("The database does not answer")
            return overloaded(busy, b"", self._guard.cors(headers))

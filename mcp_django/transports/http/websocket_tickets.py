"""WebSocket tickets: `POST <path>/ws-ticket` exchanges a credential for a ticket."""

from django.db import Error

from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authentication.tickets import LIFETIME
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.server.ports import Overloaded
from mcp_django.transports.http.messages import JSON_TYPE, NO_STORE, HTTPLimits, Reply, Request, overloaded, refused
from mcp_django.transports.security import Guard

PATH = "ws-ticket"
"""Path below the path of the endpoint."""
METHODS = b"POST, OPTIONS"
NO_NEED = b"Callers on this machine need no ticket."


class TicketDesk:
    """The ticket endpoint of one server."""

    def __init__(self, authenticator: Authenticator, guard: Guard, limits: HTTPLimits) -> None:
        self._authenticator, self._guard, self.limits = authenticator, guard, limits

    async def handle(self, request: Request) -> Reply:
        """Return the ticket, or the reply of a rejected request."""
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

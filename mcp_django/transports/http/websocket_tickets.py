"""WebSocket tickets: `POST <path>/ws-ticket` exchanges a credential for a ticket."""

from django.db import Error

from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authentication.tickets import TICKET_LIFETIME_SECONDS
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.server.ports import Overloaded
from mcp_django.transports.http.messages import (
    JSON_TYPE,
    NO_STORE,
    HTTPLimits,
    HTTPReply,
    HTTPRequest,
    build_overload_reply,
    build_refusal,
)
from mcp_django.transports.security import TransportSecurity

PATH = "ws-ticket"
"""Path below the path of the endpoint."""
METHODS = b"POST, OPTIONS"
LOCAL_CALLER_BODY = b"Callers on this machine need no ticket."


class TicketEndpoint:
    """The ticket endpoint of one server."""

    def __init__(self, authenticator: Authenticator, security: TransportSecurity, limits: HTTPLimits) -> None:
        self._authenticator = authenticator
        self._security = security
        self.limits = limits

    async def handle(self, request: HTTPRequest) -> HTTPReply:
        """Return the ticket, or the reply of a rejected request."""
        headers = request.headers
        try:
            self._security.check(headers)
            if request.method == "OPTIONS":
                return HTTPReply(204, b"", self._security.build_preflight_headers(headers, METHODS))
            if request.method != "POST":
                raise TransportRefusal(405, [(b"allow", METHODS)])
            auth_request = request.build_auth_request()
            principal = self._authenticator.get_cached(
                auth_request
            ) or await self._authenticator.authenticate_throttled(auth_request)
            if principal.is_local:
                raise TransportRefusal(404, body=LOCAL_CALLER_BODY)
            body = jsonrpc.dumps(
                {"ticket": self._authenticator.issue_ticket(auth_request), "expires_in": int(TICKET_LIFETIME_SECONDS)}
            )
            return HTTPReply(200, body, (JSON_TYPE, NO_STORE, *self._security.build_cors_headers(headers)))
        except TransportRefusal as refusal:
            return build_refusal(refusal, self._security.build_cors_headers(headers))
        except (Overloaded, Error) as error:
            overload = error if isinstance(error, Overloaded) else Overloaded("The database does not answer")
            return build_overload_reply(overload, b"", self._security.build_cors_headers(headers))

"""WebSocket tickets: `POST <path>/ws-ticket` exchanges a credential for a ticket."""

from collections.abc import Awaitable

from mcp_django import wiring
from mcp_django.auth.authentication.tickets import TICKET_LIFETIME_SECONDS
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.server.ports import Overloaded
from mcp_django.transports.http.endpoint import HTTPEndpoint
from mcp_django.transports.http.messages import JSON_TYPE, NO_STORE, HTTPReply, HTTPRequest, build_overload_reply
from mcp_django.transports.services import get_transport_services
from mcp_django.wiring.services import Services

PATH = "ws-ticket"
"""Path below the path of the endpoint."""
METHODS = b"POST, OPTIONS"
LOCAL_CALLER_BODY = b"Callers on this machine need no ticket."


class TicketEndpoint(HTTPEndpoint):
    """The ticket endpoint of one server."""

    def list_methods(self, request: HTTPRequest) -> bytes:
        """Return the methods of the endpoint."""
        return METHODS

    def authenticate(self, request: HTTPRequest) -> Awaitable[DjangoPrincipal]:
        """Return the principal of a POST. Raises TransportRefusal, Overloaded."""
        if request.method != "POST":
            raise TransportRefusal(405, [(b"allow", METHODS)])
        return super().authenticate(request)

    async def respond(self, request: HTTPRequest, principal: DjangoPrincipal) -> HTTPReply:
        """Return the ticket and its lifetime in seconds. Local callers need none."""
        if principal.is_local:
            raise TransportRefusal(404, body=LOCAL_CALLER_BODY)
        ticket = self._authenticator.issue_ticket(request.build_auth_request())
        body = jsonrpc.dumps({"ticket": ticket, "expires_in": int(TICKET_LIFETIME_SECONDS)})
        return HTTPReply(200, body, (JSON_TYPE, NO_STORE))

    def build_overload_reply(self, error: Overloaded) -> HTTPReply:
        """Build a reply without a body, because the request holds no message."""
        return build_overload_reply(error, b"")


def get_ticket_endpoint(alias: str = "default") -> TicketEndpoint:
    """Return the endpoint that issues WebSocket tickets for a server alias."""
    return wiring.get_services().get_or_build(_build_ticket_endpoint, alias)


def _build_ticket_endpoint(services: Services, alias: str) -> TicketEndpoint:
    return TicketEndpoint(get_transport_services(alias))

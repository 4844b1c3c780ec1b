"""Base of the HTTP endpoints: the checks before a reply, refusals, and CORS headers."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import TypeVar, cast

from django.db import Error

from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, MCPError, TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.runtime.calls.task import CallTask
from mcp_django.runtime.database_failures import report_database_error
from mcp_django.server.ports import Overloaded
from mcp_django.transports.admission import Admission
from mcp_django.transports.http.listen import OpenedSubscription
from mcp_django.transports.http.messages import (
    JSON_TYPE,
    HTTPReply,
    HTTPRequest,
    HTTPStream,
    build_overload_reply,
    build_refusal,
)
from mcp_django.transports.services import TransportServices

AnswerT = TypeVar("AnswerT", bound=HTTPReply | HTTPStream | OpenedSubscription)


class HTTPEndpoint(ABC):
    """An HTTP endpoint of a server, for the ASGI app and the Django view.

    Only `StreamableHTTPEndpoint` returns call tasks.
    """

    def __init__(self, services: TransportServices) -> None:
        self.limits = services.limits
        self._services = services
        self._server = services.server
        self._authenticator = services.authenticator
        self._security = services.security
        self._admission = Admission(services)
        self._max_body_digits = len(str(services.limits.body))

    def is_oversize(self, headers: Headers) -> bool:
        """Return True if the declared length of a body exceeds the limit."""
        length = headers.wire.get(b"content-length", b"")
        # Most lengths have fewer digits than the limit, and need no arithmetic.
        return len(length) >= self._max_body_digits and length.isdigit() and int(length[:20]) > self.limits.body

    async def handle(self, request: HTTPRequest) -> HTTPReply | HTTPStream | CallTask:
        """Handle a request; return a reply, a stream, or a call task to start."""
        headers = request.headers
        try:
            self._admission.check_headers(headers)  # Step 1: Host and Origin.
            if request.method == "OPTIONS":
                return HTTPReply(204, b"", self._security.build_preflight_headers(headers, self.list_methods(request)))
            principal = await self.authenticate(request)  # Step 2: credentials.
            answer = await self.respond(request, principal)
        except TransportRefusal as refusal:
            answer = build_refusal(refusal)
        except MCPError as error:
            answer = self.build_invalid_message_reply(error, request)
        except Overloaded as error:
            answer = self.build_overload_reply(error)
        except Error as error:
            answer = self.build_overload_reply(report_database_error("an HTTP request", error))

        return answer if isinstance(answer, CallTask) else self.add_cors_headers(headers, answer)

    def authenticate(self, request: HTTPRequest) -> Awaitable[DjangoPrincipal]:
        """Return the principal of a request. Raises TransportRefusal, Overloaded."""
        return self._admission.admit_caller(request.build_auth_request())

    @abstractmethod
    def list_methods(self, request: HTTPRequest) -> bytes:
        """Return the HTTP methods of the endpoint, for Allow and CORS."""

    @abstractmethod
    async def respond(self, request: HTTPRequest, principal: DjangoPrincipal) -> HTTPReply | HTTPStream | CallTask:
        """Respond to an authenticated request; the caller adds the CORS headers.

        Raises TransportRefusal, MCPError, Overloaded, django.db.Error.
        """

    def build_invalid_message_reply(self, error: MCPError, request: HTTPRequest) -> HTTPReply:
        """Build the reply to a request that has no valid message."""
        return HTTPReply(400, jsonrpc.error(error.request_id, error), (JSON_TYPE,))

    def build_overload_reply(self, error: Overloaded) -> HTTPReply:
        """Build the reply to a request that may be retried."""
        return build_overload_reply(error, jsonrpc.error(None, InternalError(str(error))))

    def add_cors_headers(self, headers: Headers, answer: AnswerT) -> AnswerT:
        """Return the answer to a request with CORS headers."""
        cors = self._security.build_cors_headers(headers)
        return cast(AnswerT, answer._replace(headers=(*answer.headers, *cors))) if cors else answer

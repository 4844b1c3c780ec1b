"""The handshake era: `initialize` opens a session with a fixed revision.

The server sends its requests to the client as JSON-RPC requests.
"""

from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams, InvalidRequest, MCPError, UnsupportedProtocolVersion
from mcp_django.protocol.headers import PROTOCOL_VERSION
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.meta import PROGRESS_TOKEN, PROGRESS_TOKEN_ERROR, is_progress_token
from mcp_django.protocol.revisions import (
    ASSUMED_REVISION,
    HANDSHAKE_VERSIONS,
    LATEST,
    REVISIONS,
    Era,
    Revision,
    negotiate,
)
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.context.conversation import ClientConversation, LiveConversation
from mcp_django.server.server import Server

INITIALIZE = "initialize"
SESSIONLESS_METHODS = frozenset({INITIALIZE, "ping"})
"""Methods allowed without a session.

basic/lifecycle: ping is allowed at any time.
"""


def is_sessionless(raw: object) -> bool:
    """Return True if the message may come without a session.

    Transports check this before they require a session id.
    """
    method = raw.get("method") if type(raw) is dict else None
    return type(method) is str and method in SESSIONLESS_METHODS


def _declared_revision(connection: Connection) -> Revision:
    """Return the revision of a message without a session.

    It is that of the header, else the default of the specification (2025-06-18, basic/transports, protocol version
    header).
    """
    headers = connection.message_headers
    version = None if headers is None else headers.wire.get(PROTOCOL_VERSION)
    if version is None:
        return ASSUMED_REVISION
    revision = REVISIONS.get(version.strip(b" \t").decode("latin-1"))
    return ASSUMED_REVISION if revision is None or revision.era is not Era.HANDSHAKE else revision


class HandshakeEra:
    """Strategy of the handshake era. See `calls.call.EraStrategy`."""

    name = Era.HANDSHAKE

    def __init__(self, server: Server) -> None:
        self._server = server

    def parse(self, raw: object, connection: Connection) -> jsonrpc.Message | list[Any]:
        if type(raw) is not list:
            return jsonrpc.read(raw)
        # basic/transports of 2025-03-26: batches MUST be accepted. Later revisions removed them, the first one never
        # had them.
        revision = _declared_revision(connection) if connection.session is None else connection.session.revision
        if not revision.batches:
            raise InvalidRequest("This revision does not allow batches; send one message at a time")
        if not raw:
            raise InvalidRequest("A batch must hold at least one message")
        return raw

    def create_call(
        self, message: jsonrpc.Request | jsonrpc.Notification, connection: Connection, outbox: Outbox
    ) -> Call:
        session, params = connection.session, message.params or {}
        if Era.HANDSHAKE not in self._server.eras:
            # basic/versioning: a server without handshake lists its versions to a client that tries one.
            raise UnsupportedProtocolVersion([LATEST.version], str(params.get("protocolVersion", ""))[:128])

        if session is not None and message.method != INITIALIZE:
            revision, capabilities, info = session.revision, session.client_capabilities, session.client_info
        elif message.method == INITIALIZE:
            revision, capabilities, info = self._read_initialize(params)
        elif message.method in SESSIONLESS_METHODS or not self._server.options.require_session:
            # Without a session, the capabilities of `initialize` are not stored, so the client has declared none.
            revision, capabilities, info = _declared_revision(connection), {}, {}
        else:
            raise InvalidRequest("No session; send initialize first")

        meta = params.get("_meta")
        level = None if session is None else session.log_level or self._server.options.log_level
        return Call(
            message,
            revision=revision,
            era=self,
            connection=connection,
            server=self._server,
            outbox=outbox,
            capabilities=capabilities,
            client_info=info,
            meta=meta if type(meta) is dict else {},
            log_level=level,
        )

    def _read_initialize(self, params: JSONObject) -> tuple[Revision, JSONObject, JSONObject]:
        wanted, capabilities, info = params.get("protocolVersion"), params.get("capabilities"), params.get("clientInfo")
        if type(wanted) is not str:
            raise InvalidParams("protocolVersion must be a string", data={"supported": list(HANDSHAKE_VERSIONS)})
        if type(capabilities) is not dict:
            raise InvalidParams("capabilities must be an object")
        if type(info) is not dict or type(info.get("name")) is not str or type(info.get("version")) is not str:
            raise InvalidParams("clientInfo must be an object with a name and a version")
        return negotiate(wanted), capabilities, info

    def check(self, call: Call) -> None:
        if PROGRESS_TOKEN in call.meta and not is_progress_token(call.meta[PROGRESS_TOKEN]):
            raise InvalidParams(PROGRESS_TOKEN_ERROR)

    def add_result_fields(self, call: Call, body: JSONObject, *, private: bool = True) -> JSONObject:
        return body

    def add_round_fields(self, call: Call, body: JSONObject) -> JSONObject:
        return body

    def get_http_status(self, problem: MCPError) -> int:
        # Only an invalid body maps to an HTTP status here. A missing scope does so in every revision
        # (basic/authorization).
        return problem.http_status if problem.code in (-32700, -32600) else 200

    def resume_conversation(self, call: Call) -> None:
        return None

    def start_conversation(self, call: Call) -> ClientConversation:
        return LiveConversation(call.root, self._server.options.conversation_limits)

"""The stateless era: every request is self-contained and identifies its client.

A request to the client ends the call; the client answers it in a retry.
"""

import hashlib

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams, InvalidRequest, MCPError, UnsupportedProtocolVersion
from mcp_django.protocol.headers import NAMED_PARAMS, check_routing
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROGRESS_TOKEN_ERROR,
    PROTOCOL_VERSION,
    SERVER_INFO,
    is_progress_token,
)
from mcp_django.protocol.revisions import HANDSHAKE_VERSIONS, REVISIONS, STATELESS_VERSIONS, Era
from mcp_django.protocol.types import LOG_LEVELS
from mcp_django.schema import call_in_default_language
from mcp_django.server.calls.call import Call, Connection, get_request_identity
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.context.conversation import InputUnavailable, ReplayConversation
from mcp_django.server.server import Server

COMPLETE = "complete"
"""`resultType` of a result that needs nothing further of the client."""
_MISSING_META = f"params._meta must hold {PROTOCOL_VERSION} (a string) and {CLIENT_CAPABILITIES} (an object)"


class StatelessEra:
    """Strategy of the stateless era. See `calls.call.EraStrategy`."""

    name = Era.STATELESS

    def __init__(self, server: Server) -> None:
        self._server = server
        info = REVISIONS[STATELESS_VERSIONS[-1]].shape_implementation(call_in_default_language(server.info.to_wire))
        self._meta: JSONObject = {SERVER_INFO: info}
        self._is_offered = Era.STATELESS in server.eras
        # The official SDK falls back to `initialize` if the list has a handshake revision, and gives up on an empty
        # list.
        self._supported = list(STATELESS_VERSIONS if self._is_offered else HANDSHAKE_VERSIONS)

    def parse(self, raw: object, connection: Connection) -> jsonrpc.Message:
        message = jsonrpc.read(raw)
        if type(message) is jsonrpc.Response:
            raise InvalidRequest("Clients must not send responses in this revision; use inputResponses in a retry")
        return message

    def create_call(
        self, message: jsonrpc.Request | jsonrpc.Notification, connection: Connection, outbox: Outbox
    ) -> Call:
        if type(message) is jsonrpc.Notification:
            return self._create_notification_call(message, connection, outbox)
        params = message.params
        meta = params.get("_meta") if params is not None else None
        if (
            type(meta) is not dict
            or type(version := meta.get(PROTOCOL_VERSION)) is not str
            or CLIENT_CAPABILITIES not in meta
        ):
            raise InvalidParams(_MISSING_META)

        headers = connection.message_headers
        if headers is not None:
            named = NAMED_PARAMS.get(message.method)
            name = params.get(named) if named is not None and params is not None else None
            # A name of the wrong type is an error of the params, not of the header.
            check_routing(headers, version, message.method, name if type(name) is str else None)

        revision = REVISIONS.get(version)
        if revision is None or not self._is_offered or version not in STATELESS_VERSIONS:
            raise UnsupportedProtocolVersion(self._supported, version)
        return Call(
            message,
            revision=revision,
            era=self,
            connection=connection,
            server=self._server,
            outbox=outbox,
            capabilities=meta[CLIENT_CAPABILITIES],
            client_info=meta.get(CLIENT_INFO, _EMPTY),
            meta=meta,
            log_level=meta.get(LOG_LEVEL),
        )

    def _create_notification_call(self, message: jsonrpc.Notification, connection: Connection, outbox: Outbox) -> Call:
        revision = REVISIONS[STATELESS_VERSIONS[-1]]
        return Call(
            message,
            revision=revision,
            era=self,
            connection=connection,
            server=self._server,
            outbox=outbox,
            capabilities={},
            client_info={},
            meta={},
        )

    def check(self, call: Call) -> None:
        if type(call.capabilities) is not dict:
            raise InvalidParams(_MISSING_META)
        if call.log_level is not None and call.log_level not in LOG_LEVELS:
            raise InvalidParams(f"_meta {LOG_LEVEL} must be one of {', '.join(LOG_LEVELS)}")
        if type(call.client_info) is not dict:
            raise InvalidParams(f"_meta {CLIENT_INFO} must be an object")
        if PROGRESS_TOKEN in call.meta and not is_progress_token(call.meta[PROGRESS_TOKEN]):
            raise InvalidParams(PROGRESS_TOKEN_ERROR)

    def add_result_fields(self, call: Call, body: JSONObject, *, private: bool = True) -> JSONObject:
        body["resultType"] = COMPLETE
        body["_meta"] = {**body["_meta"], **self._meta} if "_meta" in body else self._meta
        method = call.message.method
        if method in call.revision.cacheable:
            options = self._server.options
            ttl = 0.0 if method == "resources/read" else options.cache_ttl
            body.setdefault("ttlMs", int(ttl * 1000))  # a resource may set both itself
            body.setdefault("cacheScope", "private" if private or options.private_lists else "public")
        return body

    def add_round_fields(self, call: Call, body: JSONObject) -> JSONObject:
        return {**body, "_meta": {**body["_meta"], **self._meta} if "_meta" in body else self._meta}

    def get_http_status(self, problem: MCPError) -> int:
        return problem.http_status

    def resume_conversation(self, call: Call) -> ReplayConversation | None:
        params = call.message.params or _EMPTY
        if "requestState" not in params and "inputResponses" not in params:
            return None
        return self.start_conversation(call) if call.method in call.revision.input_required_methods else None

    def start_conversation(self, call: Call) -> ReplayConversation:
        if call.method not in call.revision.input_required_methods:
            raise InputUnavailable(
                "A completion cannot send requests to the client; only tools, prompts and resources can"
            )
        call = call.root
        return ReplayConversation(call, compute_state_binding(call), self._server.options.conversation_limits)


def compute_state_binding(call: Call) -> bytes:
    """Return the binding of the states that repetitions of a call may carry."""
    return hashlib.sha256(jsonrpc.dumps_sorted(get_request_identity(call))).digest()


_EMPTY: JSONObject = {}

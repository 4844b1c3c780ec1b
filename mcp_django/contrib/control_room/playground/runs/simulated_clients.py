"""Client of the playground: revision, capabilities, log level, and its messages."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mcp_django.contrib.control_room.playground.messages import CLIENT
from mcp_django.protocol import meta
from mcp_django.protocol.revisions import LATEST, REVISIONS, Era, Revision

INITIALIZE_ID, SET_LEVEL_ID, CALL_ID = 1, 2, 3
"""Ids of the requests in the handshake era. In the stateless era, the id is the number of the round."""
DEFAULT_LOG_LEVEL = "info"
JSONObject = dict[str, Any]


class SimulatedClient(NamedTuple):
    """Client of a run."""

    version: str = LATEST.version
    """Revision; sent as it is, also an unknown one."""
    log_level: str = DEFAULT_LOG_LEVEL
    """Lowest level of log messages; empty for none."""
    answers: bool = True
    """True if the client answers questions of the server."""
    extensions: Mapping[str, Any] = {}
    """Extensions that the client declares, by their identifiers."""

    @property
    def revision(self) -> Revision | None:
        """Known revision, or None."""
        return REVISIONS.get(self.version)

    @property
    def has_handshake(self) -> bool:
        """Return True for a revision with a handshake."""
        return self.revision is not None and self.revision.era is Era.HANDSHAKE

    def build_capabilities(self) -> JSONObject:
        """Return the extensions, and the capabilities that the revision defines for the questions of a server."""
        revision = self.revision or LATEST
        capabilities: Mapping[str, JSONObject] = {
            "elicitation/create": {
                "elicitation": {} if revision.elicitation == {"form"} else {name: {} for name in ("form", "url")}
            },
            "sampling/createMessage": {"sampling": {name: {} for name in sorted(revision.sampling)}},
            "roots/list": {"roots": {}},
        }
        declared = [part for method, part in capabilities.items() if method in revision.client_requests]
        found = {name: value for part in declared for name, value in part.items()} if self.answers else {}
        return {**found, "extensions": dict(self.extensions)} if self.extensions else found

    def build_initialize(self) -> JSONObject:
        """Return the request that opens a session."""
        params = {
            "protocolVersion": self.version,
            "capabilities": self.build_capabilities(),
            "clientInfo": dict(CLIENT),
        }
        return {"jsonrpc": "2.0", "id": INITIALIZE_ID, "method": "initialize", "params": params}

    def build_set_level(self) -> JSONObject:
        """Return the request for log messages of a session."""
        return {
            "jsonrpc": "2.0",
            "id": SET_LEVEL_ID,
            "method": "logging/setLevel",
            "params": {"level": self.log_level},
        }

    def build_request(self, method: str, params: Mapping[str, Any], number: int = 1) -> JSONObject:
        """Return the request of a round."""
        if self.has_handshake:
            entries: JSONObject = {meta.PROGRESS_TOKEN: CALL_ID}
            return {"jsonrpc": "2.0", "id": CALL_ID, "method": method, "params": {**params, "_meta": entries}}
        entries = {
            meta.PROTOCOL_VERSION: self.version,
            meta.CLIENT_CAPABILITIES: self.build_capabilities(),
            meta.CLIENT_INFO: dict(CLIENT),
            meta.PROGRESS_TOKEN: number,
        }
        if self.log_level:
            entries[meta.LOG_LEVEL] = self.log_level
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": entries}}

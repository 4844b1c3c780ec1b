"""Client of the playground: revision, capabilities, log level, and its messages."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mcp_django.contrib.playground.messages import CLIENT
from mcp_django.extensions.calls import REVISIONS, InProcessProfile
from mcp_django.protocol.revisions import LATEST
from mcp_django.transports.inprocess.profile import DEFAULT_LOG_LEVEL

INITIALIZE_ID, SET_LEVEL_ID, CALL_ID = 1, 2, 3
"""Ids of the requests in the handshake era. In the stateless era, the id is the number of the round."""
JSONObject = dict[str, Any]


class SimulatedClient(NamedTuple):
    """Choices of the operator for the client of a run."""

    version: str = LATEST.version
    """Revision; sent as it is, also an unknown one."""
    log_level: str = DEFAULT_LOG_LEVEL
    """Lowest level of log messages; empty for none."""
    answers: bool = True
    """True if the client answers questions of the server."""
    extensions: Mapping[str, Any] = {}
    """Extensions that the client declares, by their identifiers."""

    @property
    def profile(self) -> InProcessProfile:
        """Client as the server sees it."""
        return InProcessProfile(
            version=self.version,
            capabilities=self._build_capabilities(),
            client_info=CLIENT,
            log_level=self.log_level or None,
        )

    @property
    def has_handshake(self) -> bool:
        """True for a revision with a handshake."""
        return InProcessProfile(version=self.version).has_handshake

    def _build_capabilities(self) -> JSONObject:
        """Return the extensions, and the capabilities that the revision defines for the questions of a server."""
        revision = REVISIONS.get(self.version, LATEST)
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
        return self.profile.build_initialize(INITIALIZE_ID)

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
        id = CALL_ID if self.has_handshake else number
        return self.profile.build_request(id, method, params, progressToken=id)

"""Profile of a client: its revision, capabilities, name and log level, and its requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_django.protocol import meta
from mcp_django.protocol.revisions import LATEST, REVISIONS, Era, Revision

JSONObject = dict[str, Any]
CLIENT_INFO: Final[Mapping[str, str]] = {"name": "mcp_django", "version": "1"}
DEFAULT_LOG_LEVEL = "info"
ELICITATION: Final[Mapping[str, Any]] = {"elicitation": {"form": {}, "url": {}}}
"""Capability of a client that answers forms and opens URLs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcessProfile:
    """Client as a server sees it."""

    version: str = LATEST.version
    """Revision; sent as it is, also an unknown one."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    client_info: Mapping[str, Any] = field(default_factory=lambda: CLIENT_INFO)
    log_level: str | None = DEFAULT_LOG_LEVEL
    """Lowest level of log messages; None for none."""

    @property
    def revision(self) -> Revision | None:
        """Known revision, or None."""
        return REVISIONS.get(self.version)

    @property
    def has_handshake(self) -> bool:
        """True for a revision with a handshake."""
        return self.revision is not None and self.revision.era is Era.HANDSHAKE

    def build_initialize(self, id: int) -> JSONObject:
        """Return the request that opens a session."""
        params = {
            "protocolVersion": self.version,
            "capabilities": dict(self.capabilities),
            "clientInfo": dict(self.client_info),
        }
        return {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params}

    def build_request(self, id: int, method: str, params: Mapping[str, Any], **entries: Any) -> JSONObject:
        """Return a request. `entries` are added to its `_meta`; see `build_params`."""
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": self.build_params(params, **entries)}

    def build_params(self, params: Mapping[str, Any], **entries: Any) -> JSONObject:
        """Return the params of a message, with a `_meta` that describes the client in the stateless era.

        `entries` are further entries of `_meta`, and those of `params` take precedence. A None value removes an entry.
        """
        added = {**self._build_meta(), **entries, **params.get("_meta", {})}
        kept = {name: value for name, value in added.items() if value is not None}
        other = {name: value for name, value in params.items() if name != "_meta"}
        return {**other, "_meta": kept} if kept else other

    def _build_meta(self) -> JSONObject:
        if self.has_handshake:
            return {}
        return {
            meta.PROTOCOL_VERSION: self.version,
            meta.CLIENT_CAPABILITIES: dict(self.capabilities),
            meta.CLIENT_INFO: dict(self.client_info),
            meta.LOG_LEVEL: self.log_level,
        }

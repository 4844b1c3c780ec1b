"""Operations: a request with its rounds, sealed for the browser that holds it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.utils.http import urlencode

from mcp_django import conf
from mcp_django.contrib.playground.primitives import Kind, ListedPrimitive
from mcp_django.extensions.callers import DjangoPrincipal
from mcp_django.extensions.calls import sanitize_uri
from mcp_django.protocol.revisions import LATEST
from mcp_django.runtime.sealing import TokenSealer

MAX_OPERATION_BYTES = 1024 * 1024
"""Maximum bytes of a sealed operation, with the questions of its last round."""
OPERATION_SECONDS = 86_400.0
"""Seconds for which an operation can be continued."""
JSONObject = dict[str, Any]


class RunTarget(NamedTuple):
    """Primitive of a server, and the principal who uses it."""

    alias: str
    principal: DjangoPrincipal
    kind: Kind
    entry: ListedPrimitive

    @property
    def username(self) -> str:
        """Name of the user who uses it."""
        return str(self.principal.user.get_username())

    @property
    def label(self) -> str:
        """Name for the log of the admin, without the parts of a URI that can hold secrets."""
        is_uri = self.kind.method == "resources/read" and "uriTemplate" not in self.entry.raw
        name = sanitize_uri(self.entry.key) if is_uri else self.entry.key
        return f"{self.kind.method} {name} ({self.alias})"

    @property
    def query(self) -> str:
        """Query of the page for the server and the user."""
        return urlencode({"server": self.alias, "as": self.username})

    def build_binding(self, operator: Any, purpose: str) -> bytes:
        """Return the context in which a token opens: its operator, the acting user and the primitive."""
        parts = [purpose, operator.pk, self.principal.key, self.alias, self.kind.name, self.entry.key]
        return repr([str(part) for part in parts]).encode()


class Operation(NamedTuple):
    """Request of a client, and the questions of its last round."""

    params: Mapping[str, Any]
    version: str = LATEST.version
    log_level: str = ""
    number: int = 1
    """Number of the round, from 1."""
    is_confirmed: bool = False
    """True if the operator confirmed that it may write."""
    requests: Mapping[str, Any] = {}
    """Questions of the server, by their keys."""
    app: str = ""
    """Name of the tool whose app sent the request; empty for the operator."""


@conf.cached
def get_run_sealer() -> TokenSealer:
    """Return the sealer of operations and of questions."""
    return TokenSealer(conf.secret_keys(), purpose="playground", max_token_bytes=MAX_OPERATION_BYTES)


def seal_operation(operation: Operation, target: RunTarget, operator: Any) -> str:
    """Return an operation as a token of its operator. Raises StateTooLarge."""
    binding = target.build_binding(operator, "operation")
    return get_run_sealer().seal(operation._asdict(), binding, ttl=OPERATION_SECONDS)


def unseal_operation(token: Any, target: RunTarget, operator: Any) -> Operation:
    """Return the operation of a token.

    Raises InvalidParams, also for a token of another operator, user or primitive.
    """
    sealer = get_run_sealer()
    payload = sealer.unseal(token, target.build_binding(operator, "operation"))
    if payload.keys() != set(Operation._fields):  # Another version of the package has sealed it.
        raise sealer.build_error()
    return Operation(**payload)

"""Tokens of forms in apps: the sealed call that the answer continues.

A token is bound to the server, the caller with its client, and the URL. It contains the tool and its arguments, so
neither can be changed. It is valid once, on any worker, and until it expires.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from mcp_django.contrib.apps.confirmation.conversation import AppConversation
from mcp_django.extensions import Call
from mcp_django.extensions.callers import LOCAL
from mcp_django.extensions.calls import Era, jsonrpc
from mcp_django.extensions.errors import InvalidParams, ToolError

INVALID_TOKEN_MESSAGE = (
    "This question cannot be answered: it was answered before, it has expired, or it belongs to another call. Nothing "
    "was done. Call the tool again if the question still matters"
)


class InvalidFormToken(ToolError):
    """Token that is used, expired, altered, or of another caller. The text is the same for each reason."""

    def __init__(self) -> None:
        super().__init__(INVALID_TOKEN_MESSAGE)


@dataclass(frozen=True, slots=True)
class SuspendedToolCall:
    """Call of a tool that waits for the answer to a form."""

    tool: str
    """Name of the tool on the server that the client contacted."""
    arguments: dict[str, Any] = field(repr=False)
    key: str
    """Key of the form in the conversation."""
    state: dict[str, Any] = field(repr=False)
    """State of the conversation."""

    def seal(self, call: Call, conversation: AppConversation) -> str:
        """Return the token. Raises InputUnavailable if it is too large."""
        payload = {"tool": self.tool, "arguments": self.arguments, "key": self.key, "state": self.state}
        return conversation.seal_state(payload, _bind_token(call))


def unseal_token(call: Call, token: str) -> SuspendedToolCall:
    """Return the call that a token continues. Raises InvalidFormToken."""
    try:
        return SuspendedToolCall(**call.root.server.ports.state_sealer.unseal(token, _bind_token(call)))
    except InvalidParams:
        raise InvalidFormToken from None


async def consume_token(call: Call, token: str) -> None:
    """Consume a token. Raises InvalidFormToken if any process has consumed it before."""
    server = call.root.server
    digest = hashlib.sha256(token.encode()).hexdigest()
    if not await server.ports.idempotency_store.consume(digest, ttl=server.options.conversation_limits.state_ttl):
        raise InvalidFormToken


def _bind_token(call: Call) -> bytes:
    """Return the binding of the tokens of a caller; the session distinguishes anonymous callers."""
    principal, session = call.principal, call.session
    is_anonymous = principal.owner is None and getattr(principal, "kind", None) != LOCAL
    pk = session.pk if is_anonymous and session is not None and call.revision.era is Era.HANDSHAKE else None
    kwargs = {name: str(value) for name, value in call.url_kwargs.items()}
    identity = ["form in an app", call.root.server.alias, principal.key, pk, kwargs]
    return hashlib.sha256(jsonrpc.dumps_sorted(identity)).digest()

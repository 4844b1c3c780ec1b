"""Access for proxies: requests to the client, and notifications it requested.

Results are forwarded as `results.RelayedResult`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp_django.protocol.errors import MCPError
from mcp_django.server.calls.outcome import REMOTE_PREFIX
from mcp_django.server.context.context import Context
from mcp_django.server.context.conversation import InputRequest


async def forward_request(ctx: Context, request: InputRequest) -> Any:
    """Send a request of another server to the client; raises like `ctx.elicit`."""
    return await ctx.request_input(request)


def has_conversation(ctx: Context) -> bool:
    """Return True if the call may be a later round or a nested call.

    Otherwise the call has sent no requests and has no recorded steps.
    """
    return ctx.conversation is not None


def build_state_error(ctx: Context) -> MCPError:
    """Return the error of an invalid or expired state, for a record that this version cannot read."""
    return ctx.call.server.state_sealer.build_error()


def supports_capability(ctx: Context, needed: dict[str, Any]) -> bool:
    """Return True if the client declared this capability object."""
    return ctx.call.supports(needed)


def get_declared_extension(ctx: Context, identifier: str) -> Any:
    """Return the settings of an extension that the client declared, or None."""
    extensions = ctx.call.capabilities.get("extensions")
    return extensions.get(identifier) if isinstance(extensions, dict) else None


def supports_streaming(ctx: Context) -> bool:
    """Return True if the event loop outlives the call and notifications can be sent.

    False under WSGI.
    """
    return ctx.call.connection.supports_streaming


@contextmanager
def mark_remote_wait(ctx: Context | None, name: str) -> Iterator[None]:
    """Record that the call waits for a remote server, for the time of a `with` block."""
    if ctx is None:
        yield
        return
    with ctx.call.record.wait(f"{REMOTE_PREFIX}{name}"):
        yield


def wants_progress(ctx: Context) -> bool:
    """Return True if the client requested progress notifications."""
    return "progressToken" in ctx.call.meta


def get_effective_log_level(ctx: Context) -> str | None:
    """Return the lowest level of log messages for the client; None for no messages."""
    return ctx.call.effective_log_level

"""Conversion of errors from the SDK and its transports to `ClientError`.

The text of foreign exceptions may contain URLs or headers. Only their class is reported.

A call that could not be sent ends with the original exception (`transports/local_errors.py`).
"""

import os
from collections.abc import Iterator

import mcp_types as types
from mcp import MCPError

from mcp_django.client.errors import (
    CallError,
    ClientConnectionError,
    ClientError,
    HandshakeError,
    InvalidAnswer,
)
from mcp_django.client.options import ClientOptions
from mcp_django.client.sdk_compat import is_closed, is_lost
from mcp_django.protocol.display_text import clean_line

INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND = types.INVALID_PARAMS, types.INVALID_REQUEST, types.METHOD_NOT_FOUND
HEADER_MISMATCH = types.HEADER_MISMATCH


def get_local_error(error: MCPError) -> ClientError | None:
    """Return the reason why a call was not sent; None for an error of the server."""
    return error.data if isinstance(error.data, ClientError) else None


def build_connection_lost_error(options: ClientOptions) -> ClientConnectionError:
    """Build the error for a broken connection."""
    return ClientConnectionError(
        f"{options.server_label} disconnected: the connection broke before the response arrived"
    )


def build_no_response_error(error: MCPError, options: ClientOptions) -> ClientConnectionError:
    """Build the error for a call without a response on an open connection."""
    return ClientConnectionError(f"{options.server_label} did not respond: {_format_line(error)}")


def convert_response_error(error: MCPError) -> ClientError:
    """Return the reason why a call was not sent, or the server's error."""
    return get_local_error(error) or CallError(error.code, error.message, error.data)


def build_invalid_response_error(options: ClientOptions) -> InvalidAnswer:
    """Build the error for a response that violates the protocol revision."""
    return InvalidAnswer(f"{options.server_label} sent a response that violates the protocol")


def convert_connection_error(error: BaseException, options: ClientOptions) -> ClientError:
    """Convert the error of a connection that was not established, or ended."""
    leaves = list(flatten_error(error))
    for leaf in leaves:
        if isinstance(leaf, ClientError):
            return leaf
        if isinstance(leaf, MCPError) and (local_error := get_local_error(leaf)) is not None:
            return local_error

    for leaf in leaves:
        if isinstance(leaf, MCPError) and not is_lost(leaf):
            return HandshakeError(f"{options.server_label} refused the connection: {_format_line(leaf)} ({leaf.code})")
        if isinstance(leaf, MCPError) and not is_closed(leaf):
            return build_no_response_error(leaf, options)

    for leaf in leaves:
        if type(leaf) is TimeoutError and leaf.errno is None:
            return ClientConnectionError(f"{options.server_label} did not answer within {options.startup_timeout:g} s")
        if type(leaf) in (ValueError, RuntimeError) or type(leaf).__name__ == "ValidationError":
            return HandshakeError(f"{options.server_label} supports none of the protocol revisions of this client")

    kinds = ", ".join(dict.fromkeys(_describe_kind(leaf) for leaf in leaves if not isinstance(leaf, MCPError)))
    return ClientConnectionError(f"{options.server_label} cannot be reached{f' ({kinds})' if kinds else ''}")


def _format_line(error: MCPError) -> str:
    """Return a server's message in one line, because connection errors are logged."""
    return clean_line(error.message)


def flatten_error(error: BaseException) -> Iterator[BaseException]:
    """Iterate over the errors in a group at any depth.

    Any other error is the only item.
    """
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from flatten_error(inner)
    else:
        yield error


def _describe_kind(error: BaseException) -> str:
    """Return the class of an exception and the system's text for its errno.

    The exception's own text is never included.
    """
    inner: BaseException | None = error
    for _ in range(8):
        if inner is None:
            break
        if isinstance(inner, OSError) and inner.errno:
            return f"{type(error).__name__}: {os.strerror(inner.errno)}"
        inner = inner.__cause__ or inner.__context__
    return type(error).__name__

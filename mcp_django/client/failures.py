"""What the SDK and its transports raise, as errors of ours.

Of what may have a URL or a header in its text only the kind is told.
"""

import os
from collections.abc import Iterator

import mcp_types as types
from mcp import MCPError

from mcp_django.client.error_transport import carried
from mcp_django.client.errors import (
    CallError,
    ClientConnectionError,
    ClientError,
    HandshakeError,
    InvalidAnswer,
    legible,
)
from mcp_django.client.options import Options

LOST = ("Connection closed", "SSE stream")
TERMINATED = "Session terminated"
"""Words for what happened to the wire; over HTTP they come as if the server had said them."""
INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND = types.INVALID_PARAMS, types.INVALID_REQUEST, types.METHOD_NOT_FOUND
HEADER_MISMATCH = types.HEADER_MISMATCH


def is_lost(error: MCPError) -> bool:
    """Is this no answer of the server, but the end of the wire or of the stream that would have had the answer?"""
    return error.code == types.CONNECTION_CLOSED and error.message.startswith(LOST)


def is_closed(error: MCPError) -> bool:
    """Is it the end of the wire?"""
    return error.code == types.CONNECTION_CLOSED and error.message == LOST[0]


def is_terminated(error: MCPError) -> bool:
    """Does the server know the session no more, so that a new one has to be made?"""
    return error.code == INVALID_REQUEST and error.message == TERMINATED


def lost(options: Options) -> ClientConnectionError:
    """The connection broke."""
    return ClientConnectionError(f"{options.name} is gone: the connection broke before the answer came")


def of_silence(error: MCPError, options: Options) -> ClientConnectionError:
    """One call got no answer, while the connection stands."""
    return ClientConnectionError(f"{options.name} gave no answer: {_line(error)}")


def of_answer(error: MCPError) -> ClientError:
    """What the server answered, or why it was not asked."""
    return carried(error) or CallError(error.code, error.message, error.data)


def of_nonsense(options: Options) -> InvalidAnswer:
    """The server's answer is not what its revision says."""
    return InvalidAnswer(f"{options.name} sent something that the protocol does not allow")


def of_connecting(error: BaseException, options: Options) -> ClientError:
    """Why a connection was not made, or ended."""
    leaves = list(_leaves(error))
    for leaf in leaves:
        if isinstance(leaf, ClientError):
            return leaf
        if isinstance(leaf, MCPError) and (unsent := carried(leaf)) is not None:
            return unsent
    for leaf in leaves:
        if isinstance(leaf, MCPError) and not is_lost(leaf):
            return HandshakeError(f"{options.name} refused: {_line(leaf)} ({leaf.code})")
        if isinstance(leaf, MCPError) and not is_closed(leaf):
            return of_silence(leaf, options)
    for leaf in leaves:
        if type(leaf) is TimeoutError and leaf.errno is None:
            return ClientConnectionError(f"{options.name} did not answer within {options.startup_timeout:g} s")
        if type(leaf) in (ValueError, RuntimeError) or type(leaf).__name__ == "ValidationError":
            return HandshakeError(f"{options.name} speaks no revision of the protocol that this client speaks")
    kinds = ", ".join(dict.fromkeys(_kind(leaf) for leaf in leaves if not isinstance(leaf, MCPError)))
    return ClientConnectionError(f"{options.name} cannot be reached{f' ({kinds})' if kinds else ''}")


def _line(error: MCPError) -> str:
    """A server's text in one line: what is said of connections is logged."""
    return " ".join(legible(error.message).split())


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _kind(error: BaseException) -> str:
    """The class of an exception, and the system's word for its number; never its own text."""
    inner: BaseException | None = error
    for _ in range(8):
        if inner is None:
            break
        if isinstance(inner, OSError) and inner.errno:
            return f"{type(error).__name__}: {os.strerror(inner.errno)}"
        inner = inner.__cause__ or inner.__context__
    return type(error).__name__

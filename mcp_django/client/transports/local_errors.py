"""Local errors: the reasons why a call was not sent, on their way through the SDK's transport.

A call that could not be sent, for example without a credential, is answered with a JSON-RPC error in the server's
place, and the connection stays open for other calls. The error has an unguessable key. Before the SDK's session reads
the response, the original exception replaces the key. A server can neither guess a key nor send an exception.
"""

import secrets
from dataclasses import replace
from typing import Any, Final, Self

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError

from mcp_django.client.errors import ClientError
from mcp_django.client.sdk_compat import Streams

LOCAL_ERROR_CODE: Final = -32099
"""JSON-RPC error code of responses with a local error."""
_KEY_MEMBER: Final = "localError"


class LocalErrors:
    """Local errors of one connection, until their responses are read."""

    def __init__(self) -> None:
        self._errors: dict[str, ClientError] = {}

    def store(self, error: ClientError) -> dict[str, Any]:
        """Store an error, and return the `data` of the JSON-RPC error in its place."""
        key = secrets.token_hex(16)
        self._errors[key] = error
        return {_KEY_MEMBER: key}

    def restore(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Return a message with the stored error as its `data`, and any other item unchanged."""
        response = item.message if isinstance(item, SessionMessage) else None
        if not isinstance(item, SessionMessage) or not isinstance(response, JSONRPCError):
            return item
        data = response.error.data
        error = self._errors.pop(str(data.get(_KEY_MEMBER)), None) if isinstance(data, dict) else None
        if error is None:
            return item
        restored = response.error.model_copy(update={"data": error})
        return replace(item, message=response.model_copy(update={"error": restored}))

    def wrap(self, streams: Streams) -> Streams:
        """Return the streams of a connection, with a reader that restores errors."""
        reader, writer = streams
        return RestoringReader(reader, self), writer


class RestoringReader:
    """Read stream of the SDK that restores local errors."""

    def __init__(self, reader: Any, errors: LocalErrors) -> None:
        self._reader = reader
        self._errors = errors

    @property
    def last_context(self) -> Any:
        """Context of the sender of the last message, which the SDK reads."""
        return getattr(self._reader, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._errors.restore(await self._reader.receive())

    async def aclose(self) -> None:
        await self._reader.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._errors.restore(await anext(self._reader))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

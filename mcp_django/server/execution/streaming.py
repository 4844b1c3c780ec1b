"""Tool results in pieces: each piece is progress, all pieces form the result.

    @tool
    async def story(about: str) -> AsyncIterator[str]:
        async for words in model.write(about):
            yield words

A client without a `progressToken` receives only the result. The generator is closed at the end of the call in every
case, so its `finally` blocks run.
"""

import asyncio
import threading
import types
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import Any, NamedTuple

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.content import TextContent
from mcp_django.protocol.display_text import truncate
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.log_text import get_logger
from mcp_django.schema import to_json
from mcp_django.server.context.context import Context
from mcp_django.server.ports import Executor
from mcp_django.server.primitives.base import ToolOutput
from mcp_django.server.primitives.results import Accumulate, ToolResult, ToolStream

logger = get_logger("mcp_django.server")

MAX_MESSAGE_CHARACTERS = 4096
"""Maximum characters of a piece in one progress message."""
CLOSE_TIMEOUT_SECONDS = 5.0
"""Seconds that a generator has for its cleanup."""
STREAM_TYPES: frozenset[type] = frozenset({ToolStream, types.AsyncGeneratorType, types.GeneratorType})
"""Types of values that are results in pieces."""


class _GeneratorResult(NamedTuple):
    """Return value of a generator, which is the result."""

    value: object


async def collect_stream(value: Any, context: Context, output: ToolOutput | None) -> Any:
    """Return the result of a stream, and send its pieces as progress of the call.

    A ToolResult as a piece is the complete result. Raises the exceptions of the generator, and ToolError above the
    limit.
    """
    stream: ToolStream[object] = value if type(value) is ToolStream else ToolStream(value)
    accumulate = stream.accumulate or _get_default_accumulate(output)
    pieces: list[Any] = []
    number = 0
    source = _PieceIterator(stream.items, context.server.ports.executor)

    try:
        async for piece in source:
            if type(piece) is _GeneratorResult or type(piece) is ToolResult:
                return piece.value if type(piece) is _GeneratorResult else piece
            number += 1
            if accumulate == "last":
                pieces.clear()
            pieces.append(piece)
            if len(pieces) > stream.limit:
                raise ToolError(f"The tool was stopped: its result exceeds the limit of {stream.limit} pieces")
            if context.meta.get("progressToken") is not None:
                await context.report_progress(number, stream.total, _format_message(piece))
    finally:
        await source.close()
    return _accumulate(pieces, accumulate)


def _get_default_accumulate(output: ToolOutput | None) -> Accumulate | None:
    """Return the accumulation that fits the output schema; None if any result fits."""
    if output is None:
        return None
    kind = output.schema["properties"]["result"].get("type") if output.is_wrapped else "object"
    match kind:
        case "string":
            return "text"
        case "array":
            return "list"
    return "last"


def _accumulate(pieces: list[Any], accumulate: Accumulate | None) -> object:
    if callable(accumulate):
        return accumulate(pieces)
    if accumulate == "last":
        return pieces[-1] if pieces else None
    if accumulate == "text" or (accumulate is None and all(isinstance(piece, str) for piece in pieces)):
        return "".join(map(str, pieces))
    return pieces


def _format_message(piece: object) -> str:
    """Format a piece as a progress message, shortened if necessary."""
    if isinstance(piece, TextContent):
        piece = piece.text
    if not isinstance(piece, str):
        try:
            piece = jsonrpc.dumps(to_json(piece)).decode()
        except TypeError:
            return type(piece).__name__  # for example an image
    return truncate(piece, MAX_MESSAGE_CHARACTERS)


class _PieceIterator:
    """Iterator over the pieces: async ones on the loop, sync ones on a thread."""

    def __init__(self, items: Any, executor: Executor) -> None:
        self._executor = executor
        self._async: AsyncIterator[Any] | None = aiter(items) if isinstance(items, AsyncIterable) else None
        self._iterator = None if self._async is not None else _LockedIterator(iter(items))

    def __aiter__(self) -> "_PieceIterator":
        return self

    async def __anext__(self) -> object:
        if self._async is not None:
            return await anext(self._async)
        assert self._iterator is not None
        piece = await self._executor.run(self._iterator.next_piece)
        if piece is _END:
            raise StopAsyncIteration
        return piece

    async def close(self) -> None:
        """Close the generator. Failures are logged: the call already has its outcome."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                if self._iterator is not None:
                    if self._iterator.stop():
                        await self._executor.run(self._iterator.close)
                elif (close := getattr(self._async, "aclose", None)) is not None:
                    await close()
        except Exception:
            logger.exception("Generator of a tool result could not be closed")


_END: object = object()


class _LockedIterator:
    """Sync iterator that a thread may be using when its call ends."""

    def __init__(self, items: Iterator[object]) -> None:
        self._items = items
        self._lock = threading.Lock()
        self._stopped = False

    def next_piece(self) -> Any:
        """Return the next piece; `_END` at the end."""
        with self._lock:
            try:
                piece = _END if self._stopped else next(self._items)
            except StopIteration as end:
                piece = _END if end.value is None else _GeneratorResult(end.value)
        if self._stopped:
            self.close()
        return piece

    def stop(self) -> bool:
        """Stop the iteration; False if a thread is inside the iterator and will close it."""
        self._stopped = True
        if self._lock.acquire(blocking=False):
            self._lock.release()
            return True
        return False

    def close(self) -> None:
        with self._lock:
            close = getattr(self._items, "close", None)
            if close is not None:
                close()

"""Tool results in pieces: each piece is progress, all pieces form the result.

    @tool
    async def story(about: str) -> AsyncIterator[str]:
        async for words in model.write(about):
            yield words

A client without a `progressToken` receives only the result. The generator is closed at the end of the call in every
case, so its `finally` blocks run.
"""

import asyncio
import logging
import threading
import types
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.content import TextContent
from mcp_django.protocol.errors import ToolError
from mcp_django.schema import to_json

if TYPE_CHECKING:
    from mcp_django.server.context.context import Context
    from mcp_django.server.ports import Executor
    from mcp_django.server.primitives.base import ToolOutput

logger = logging.getLogger("mcp_django.server")
T = TypeVar("T")
Accumulate = Literal["text", "list", "last"] | Callable[[list[Any]], Any]

DEFAULT_MAX_PIECES = 100_000
"""Default maximum number of pieces kept for the result."""
MAX_MESSAGE_CHARACTERS = 4096
"""Maximum characters of a piece in one progress message."""
CLOSE_TIMEOUT_SECONDS = 5.0
"""Seconds that a generator has for its cleanup."""


class ToolStream(Generic[T]):
    """Result in pieces, with options: an iterable or generator, sync or async.

    A tool that is a generator function itself needs this class only for the options.

    `total` is the number of pieces, if known. `accumulate` builds the result: `"text"` joins the pieces, `"list"` lists
    them, `"last"` takes the last one. A function receives the list. The default follows the output schema of the tool.
    Without a schema, texts are joined and other pieces listed.

    A ToolResult as a piece is the result and ends the stream, like the return value of a sync generator. More than
    `limit` pieces end the call with an error, except with `"last"`, which keeps a single piece.
    """

    __slots__ = ("accumulate", "items", "limit", "total")

    def __init__(
        self,
        items: AsyncIterable[T] | Iterable[T],
        *,
        total: float | None = None,
        accumulate: Accumulate | None = None,
        limit: int = DEFAULT_MAX_PIECES,
    ) -> None:
        """Create a stream.

        Raises ValueError for an unknown `accumulate`, TypeError if `items` is not iterable.
        """
        if not callable(accumulate) and accumulate not in (None, "text", "list", "last"):
            raise ValueError(f"accumulate={accumulate!r} is invalid; use 'text', 'list', 'last' or a function")
        if not isinstance(items, AsyncIterable | Iterable):
            raise TypeError(f"a {type(items).__name__} is not iterable; pass a generator")
        self.items = items
        self.total = total
        self.accumulate = accumulate
        self.limit = limit


STREAM_TYPES: frozenset[type] = frozenset({ToolStream, types.AsyncGeneratorType, types.GeneratorType})
"""Types of values that are results in pieces."""


class _GeneratorResult(NamedTuple):
    """Return value of a generator, which is the result."""

    value: Any


async def collect_stream(
    value: Any, context: "Context", output: "ToolOutput | None", is_result: Callable[[Any], bool]
) -> Any:
    """Return the result of a stream, and send its pieces as progress of the call.

    `is_result` returns True for a piece that is the complete result. Raises the exceptions of the generator, and
    ToolError above the limit.
    """
    stream: ToolStream[Any] = value if type(value) is ToolStream else ToolStream(value)
    accumulate = stream.accumulate or _get_default_accumulate(output)
    pieces: list[Any] = []
    number = 0
    source = _PieceIterator(stream.items, context.server.executor)

    try:
        async for piece in source:
            if type(piece) is _GeneratorResult or is_result(piece):
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


def _get_default_accumulate(output: "ToolOutput | None") -> Accumulate | None:
    """Return the accumulation that fits the output schema; None if any result fits."""
    if output is None:
        return None
    kind = output.schema["properties"]["result"].get("type") if output.is_wrapped else "object"
    return "text" if kind == "string" else "list" if kind == "array" else "last"


def _accumulate(pieces: list[Any], accumulate: Accumulate | None) -> Any:
    if callable(accumulate):
        return accumulate(pieces)
    if accumulate == "last":
        return pieces[-1] if pieces else None
    if accumulate == "text" or (accumulate is None and all(isinstance(piece, str) for piece in pieces)):
        return "".join(map(str, pieces))
    return pieces


def _format_message(piece: Any) -> str:
    """Format a piece as a progress message, shortened if necessary."""
    if isinstance(piece, TextContent):
        piece = piece.text
    if not isinstance(piece, str):
        try:
            piece = jsonrpc.dumps(to_json(piece)).decode()
        except TypeError:
            return type(piece).__name__  # for example an image
    return piece if len(piece) <= MAX_MESSAGE_CHARACTERS else f"{piece[: MAX_MESSAGE_CHARACTERS - 1]}…"


class _PieceIterator:
    """Iterator over the pieces: async ones on the loop, sync ones on a thread."""

    def __init__(self, items: Any, executor: "Executor") -> None:
        self._executor = executor
        self._async: AsyncIterator[Any] | None = aiter(items) if isinstance(items, AsyncIterable) else None
        self._iterator = None if self._async is not None else _LockedIterator(iter(items))

    def __aiter__(self) -> "_PieceIterator":
        return self

    async def __anext__(self) -> Any:
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


_END: Any = object()


class _LockedIterator:
    """Sync iterator that a thread may be using when its call ends."""

    def __init__(self, items: Iterator[Any]) -> None:
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

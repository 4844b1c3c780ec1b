"""A tool that gives its result piece by piece: each piece is progress, all of them are the result.

    @tool
    async def story(about: str) -> AsyncIterator[str]:
        async for words in model.write(about):
            yield words

A client that sent no `progressToken` gets the result alone. The generator is closed when the call ends, however it
ends: what it has in `finally` is run.
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

LIMIT = 100_000
"""Pieces that are kept for the result, by default."""
MESSAGE = 4096
"""Characters of a piece that one progress message has at most."""
CLOSING = 5.0
"""Seconds that a generator has to clean up."""


class ToolStream(Generic[T]):
    """What a tool returns in place of a result that comes piece by piece: a generator, async or plain, or whatever
    else can be iterated. A tool that is a generator function itself needs it only for these options.

    `total` is the number of pieces, where it is known. `accumulate` makes the result of them: `"text"` joins them,
    `"list"` lists them, `"last"` takes the last, a function is given the list. By default it is what the tool's output
    schema asks for; without one, texts are joined and anything else is listed. A piece that is a ToolResult is the
    result, and the end; so is what a plain generator returns. More than `limit` pieces end the call with an error,
    except with `"last"`, which keeps none.
    """

    __slots__ = ("accumulate", "items", "limit", "total")

    def __init__(
        self,
        items: AsyncIterable[T] | Iterable[T],
        *,
        total: float | None = None,
        accumulate: Accumulate | None = None,
        limit: int = LIMIT,
    ) -> None:
        """Raises ValueError for another `accumulate`, TypeError for what cannot be iterated."""
        if not callable(accumulate) and accumulate not in (None, "text", "list", "last"):
            raise ValueError(f"accumulate={accumulate!r} is none of 'text', 'list', 'last', and no function")
        if not isinstance(items, AsyncIterable | Iterable):
            raise TypeError(f"a {type(items).__name__} cannot be iterated; give a generator")
        self.items, self.total, self.accumulate, self.limit = items, total, accumulate, limit


STREAMS: frozenset[type] = frozenset({ToolStream, types.AsyncGeneratorType, types.GeneratorType})
"""Types of values that are results piece by piece."""


class _Result(NamedTuple):
    """What a generator said the result is."""

    value: Any


async def collected(
    value: Any, context: "Context", output: "ToolOutput | None", is_result: Callable[[Any], bool]
) -> Any:
    """The result of a stream, whose pieces are told as progress of the call. `is_result` knows a piece that is one.

    Raises what the generator raises, and ToolError above its limit.
    """
    stream: ToolStream[Any] = value if type(value) is ToolStream else ToolStream(value)
    accumulate = stream.accumulate or _wanted(output)
    kept: list[Any] = []
    number = 0
    source = _Pieces(stream.items, context.server.executor)
    try:
        async for piece in source:
            if type(piece) is _Result or is_result(piece):
                return piece.value if type(piece) is _Result else piece
            number += 1
            if accumulate == "last":
                kept.clear()
            kept.append(piece)
            if len(kept) > stream.limit:
                raise ToolError(f"The tool was stopped after {stream.limit} pieces of its result, which is the limit")
            if context.meta.get("progressToken") is not None:
                await context.report_progress(number, stream.total, _message(piece))
    finally:
        await source.close()
    return _made(kept, accumulate)


def _wanted(output: "ToolOutput | None") -> Accumulate | None:
    """What the result has to be, to fit the schema; None where anything fits."""
    if output is None:
        return None
    kind = output.schema["properties"]["result"].get("type") if output.wrapped else "object"
    return "text" if kind == "string" else "list" if kind == "array" else "last"


def _made(pieces: list[Any], accumulate: Accumulate | None) -> Any:
    if callable(accumulate):
        return accumulate(pieces)
    if accumulate == "last":
        return pieces[-1] if pieces else None
    if accumulate == "text" or (accumulate is None and all(isinstance(piece, str) for piece in pieces)):
        return "".join(map(str, pieces))
    return pieces


def _message(piece: Any) -> str:
    """A piece as a line of progress; the result has it in full."""
    if isinstance(piece, TextContent):
        piece = piece.text
    if not isinstance(piece, str):
        try:
            piece = jsonrpc.dumps(to_json(piece)).decode()
        except TypeError:
            return type(piece).__name__  # an image, say
    return piece if len(piece) <= MESSAGE else f"{piece[: MESSAGE - 1]}…"


class _Pieces:
    """The pieces one by one: of async iterables on the loop, of plain ones on the call's lane."""

    def __init__(self, items: Any, executor: "Executor") -> None:
        self._executor = executor
        self._async: AsyncIterator[Any] | None = aiter(items) if isinstance(items, AsyncIterable) else None
        self._turns = None if self._async is not None else _Turns(iter(items))

    def __aiter__(self) -> "_Pieces":
        return self

    async def __anext__(self) -> Any:
        if self._async is not None:
            return await anext(self._async)
        assert self._turns is not None
        piece = await self._executor.run(self._turns.take)
        if piece is _OVER:
            raise StopAsyncIteration
        return piece

    async def close(self) -> None:
        """Have it clean up; what goes wrong with that is logged, since the call has its outcome already."""
        try:
            async with asyncio.timeout(CLOSING):
                if self._turns is not None:
                    if self._turns.end():
                        await self._executor.run(self._turns.close)
                elif (close := getattr(self._async, "aclose", None)) is not None:
                    await close()
        except Exception:
            logger.exception("A stream of a tool's result could not be closed")


_OVER: Any = object()


class _Turns:
    """A plain iterator, which a thread may be in the middle of when its call is over."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items, self._lock = items, threading.Lock()
        self._over = False

    def take(self) -> Any:
        """The next piece, _OVER at the end."""
        with self._lock:
            try:
                piece = _OVER if self._over else next(self._items)
            except StopIteration as end:
                piece = _OVER if end.value is None else _Result(end.value)
        if self._over:
            self.close()
        return piece

    def end(self) -> bool:
        """No more is wanted. False when a thread is at it, and will close it."""
        self._over = True
        if self._lock.acquire(blocking=False):
            self._lock.release()
            return True
        return False

    def close(self) -> None:
        with self._lock:
            close = getattr(self._items, "close", None)
            if close is not None:
                close()

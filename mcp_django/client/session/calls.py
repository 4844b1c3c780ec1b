"""Execution of client operations: pagination, input requests, typed results.

Data from servers is bounded: pages, entries, rounds, and input requests in a round.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import mcp_types as types

from mcp_django.client import failures
from mcp_django.client.errors import CallError, ClientError, InvalidAnswer, ToolNotFound
from mcp_django.client.options import Options
from mcp_django.client.session.callbacks import Answerers
from mcp_django.client.session.connection_manager import Keeper
from mcp_django.client.session.handlers import ProgressHandler
from mcp_django.client.session.requests import MAX_PAGES, Rounds
from mcp_django.client.session.validation import Structured
from mcp_django.schema import to_json

ResultT = TypeVar("ResultT", bound=types.Result)

MAX_ENTRIES = 10_000
"""Maximum number of entries accepted in a list."""
MAX_ROUNDS = 32
"""Maximum number of rounds of input requests in one call."""
MAX_QUESTIONS = 64
"""Maximum number of input requests in one round."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""First and maximum delay in seconds before an incomplete call is retried.

They apply to an incomplete result without input requests.
"""


class Calls:
    """Executes the typed operations of one client."""

    def __init__(self, keeper: Keeper, rounds: Rounds, options: Options, answerers: Answerers) -> None:
        self._keeper, self._rounds, self._options, self._answerers = keeper, rounds, options, answerers
        self._structured = Structured()

    async def listed(self, method: str, key: str, result: type[ResultT], timeout: float | None) -> list[Any]:
        """Return all entries of a list, following its pages.

        Raises:
            InvalidAnswer: The list exceeds the limits of pages or entries, or repeats a cursor.
        """
        entries: list[Any] = []
        cursors: set[str] = set()
        params: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            page: Any = self._read(result, await self._rounds.send(method, params, timeout=timeout))
            entries.extend(getattr(page, key))
            if len(entries) > MAX_ENTRIES:
                raise InvalidAnswer(f"{self._options.name} lists more than {MAX_ENTRIES} entries")

            cursor: str | None = page.next_cursor
            if cursor is None:
                return entries
            if cursor in cursors:
                raise InvalidAnswer(f"{self._options.name} repeats a cursor of its list")
            cursors.add(cursor)
            params = {"cursor": cursor}
        raise InvalidAnswer(f"{self._options.name} lists more than {MAX_PAGES} pages")

    async def tools(self, timeout: float | None) -> list[types.Tool]:
        """List all tools and store their output schemas for later results."""
        tools = await self.listed("tools/list", "tools", types.ListToolsResult, timeout)
        self._structured.learn(tools)
        return tools

    async def tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        *,
        timeout: float | None,
        on_progress: ProgressHandler | None,
        meta: Mapping[str, Any] | None,
    ) -> types.CallToolResult:
        """Call a tool and validate its result."""
        params = {"name": name, "arguments": to_json(dict(arguments or {}))}
        try:
            raw = await self._answered("tools/call", params, timeout=timeout, on_progress=on_progress, meta=meta)
        except CallError as error:
            if await self._is_unknown(name, error):
                raise ToolNotFound(error.code, error.message, error.data) from None
            raise

        result = self._read(types.CallToolResult, raw)
        if result.is_error and _says_unknown(result, name) and await self._is_missing(name):
            raise ToolNotFound(message=_text(result))
        self._structured.check(name, result)
        return result

    async def ask(self, method: str, params: Mapping[str, Any], result: type[ResultT], **options: Any) -> ResultT:
        """Send a request, handle its input requests, and parse the result."""
        return self._read(result, await self._answered(method, params, **options))

    async def subscribe(self, uri: str) -> None:
        """Subscribe to a resource.

        The handshake era sends a request; the stateless era adds the URI to the listen stream.
        """
        connection = await self._keeper.connection()
        was_there = uri in self._keeper.subscribed
        self._keeper.subscribed[uri] = None
        try:
            if connection.stateless:
                await self._keeper.listen_to(uri)
            else:
                await self._rounds.send("resources/subscribe", {"uri": uri})
        except BaseException:
            if not was_there:
                self._keeper.subscribed.pop(uri, None)
            raise

    async def unsubscribe(self, uri: str) -> None:
        """Cancel the subscription to a resource."""
        if uri not in self._keeper.subscribed:
            return
        del self._keeper.subscribed[uri]
        connection = await self._keeper.connection()
        if connection.stateless:
            self._keeper.look()
        else:
            await self._rounds.send("resources/unsubscribe", {"uri": uri})

    async def set_logging_level(self, level: types.LoggingLevel) -> None:
        """Set the minimum level of log messages to receive."""
        connection = await self._keeper.connection()
        if not connection.stateless:
            await self._rounds.send("logging/setLevel", {"level": level})
        self._keeper.log_level = level

    async def ping(self, timeout: float | None) -> None:
        """Check that the server responds."""
        connection = await self._keeper.connection()
        await self._rounds.send("server/discover" if connection.stateless else "ping", timeout=timeout)

    async def notify_roots_changed(self) -> None:
        """Notify the server of changed roots, in the era that defines it."""
        connection = await self._keeper.connection()
        if not connection.stateless:
            await connection.notify(types.RootsListChangedNotification())

    async def _answered(self, method: str, params: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Send a request, answering input requests, until the result is complete."""
        pause, more = FIRST_PAUSE, dict[str, Any]()
        for _ in range(MAX_ROUNDS + 1):
            raw = await self._rounds.send(method, {**params, **more}, **options)
            if raw.get("resultType") != "input_required":
                return raw
            asked = self._read(types.InputRequiredResult, raw)
            more = {} if asked.request_state is None else {"requestState": asked.request_state}
            if asked.input_requests:
                more["inputResponses"] = await self._answers(asked.input_requests)
                pause = FIRST_PAUSE
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
        raise InvalidAnswer(f"{self._options.name} requested input more than {MAX_ROUNDS} times in one call")

    async def _answers(self, questions: types.InputRequests) -> dict[str, Any]:
        """Handle all input requests of a round concurrently and return the responses."""
        if len(questions) > MAX_QUESTIONS:
            raise InvalidAnswer(f"{self._options.name} sent more than {MAX_QUESTIONS} input requests at once")
        tasks = {key: asyncio.ensure_future(self._answerers.answer(question)) for key, question in questions.items()}
        try:
            await asyncio.gather(*tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()

        answers = {key: task.result() for key, task in tasks.items()}
        return {
            key: answer.model_dump(by_alias=True, mode="json", exclude_none=True) for key, answer in answers.items()
        }

    async def _is_unknown(self, name: str, error: CallError) -> bool:
        """Return True if the tool does not exist.

        The error code is the same as for invalid arguments, so the tool list is checked.
        """
        return error.code in (failures.INVALID_PARAMS, failures.METHOD_NOT_FOUND) and await self._is_missing(name)

    async def _is_missing(self, name: str) -> bool:
        try:
            return all(tool.name != name for tool in await self.tools(None))
        except ClientError:
            return False

    def _read(self, result: type[ResultT], raw: dict[str, Any]) -> ResultT:
        try:
            return result.model_validate(raw, by_name=False)
        except ValueError:
            raise failures.of_nonsense(self._options) from None


def _text(result: types.CallToolResult) -> str:
    return next((block.text for block in result.content if isinstance(block, types.TextContent)), "")


def _says_unknown(result: types.CallToolResult, name: str) -> bool:
    """Return True if the text of a failed result reports an unknown tool.

    Some servers do not use an error response for this.
    """
    text = _text(result)
    return name in text and ("unknown tool" in text.lower() or "not found" in text.lower())

"""What a handler is given: who asks, and the ways to talk back while it runs."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.sampling_types import Said
from mcp_django.schema import to_json
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.cleanup import Farewells, keep
from mcp_django.server.client_requests.conversation import (
    ASKED_IN_TRANSACTION,
    Conversation,
    Question,
    Replay,
    Unanswered,
    gather,
)
from mcp_django.server.client_requests.elicitation import form_question, is_address, page_question, url_question
from mcp_django.server.client_requests.idempotency import ONCE_IN_TRANSACTION
from mcp_django.server.client_requests.responses import Answer, Root, roots_question
from mcp_django.server.client_requests.sampling import MAX_ITERATIONS, MAX_TOKENS, Sample, prepared
from mcp_django.server.context.background import Job
from mcp_django.server.context.call_info import Facts
from mcp_django.server.context.notifications import LOGGED, log_params, progress_params, require_notification
from mcp_django.server.context.sync_context import SyncContext

if TYPE_CHECKING:
    from mcp_django.server.execution.sampling_tools import Offered
    from mcp_django.server.primitives.base import Primitive

T = TypeVar("T")


class Context(Facts):
    """One per call. Declare a parameter of this type, under any name, and it is filled in; it never shows in a schema.

    Handlers written with `def` use the same names on `ctx.sync`, which wait in the handler's own thread.
    """

    __slots__ = (
        "_conversation",
        "_pages",
        "_progress",
        "_samples",
        "farewells",
        "in_transaction",
        "jobs",
    )

    def __init__(
        self, call: Call, primitive: "Primitive | None" = None, conversation: Conversation | None = None
    ) -> None:
        super().__init__(call, primitive)
        self._conversation = conversation
        self._progress: float | None = None
        self._samples: Counter[str] | None = None
        self._pages: Counter[str] | None = None
        self.farewells: Farewells | None = None
        """What is left for the end of a call without a session."""
        self.in_transaction = False
        """Is the handler running as one transaction of the call's?"""
        self.jobs: list[Job] | None = None
        """What the handler that runs leaves for when it has succeeded; None around it."""

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is; nothing happens when it did not ask.

        A value that does not exceed the last one is left out: progress must increase (basic/utilities/progress).
        """
        params = progress_params(self._call, self._progress, progress, total, message)
        if params is not None:
            self._progress = progress
            await self._emit("notifications/progress", params)

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants this level. `data` is any JSON value; keep secrets out."""
        params = log_params(self._call, level, data, logger)
        if params is not None and not self.replaying:
            await self._emit(LOGGED, params)

    async def debug(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("debug", data, logger=logger)

    async def info(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("info", data, logger=logger)

    async def notice(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("notice", data, logger=logger)

    async def warning(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("warning", data, logger=logger)

    async def error(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("error", data, logger=logger)

    async def critical(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("critical", data, logger=logger)

    async def alert(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("alert", data, logger=logger)

    async def emergency(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("emergency", data, logger=logger)

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification of your own on this call's stream. `method` starts with `notifications/`."""
        require_notification(method)
        await self._emit(method, params or {})

    def background(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Have `fn` run after the answer was sent, on the event loop if it is async, else on a lane. From any thread.

        Left by a handler, it runs only if that returns, and its transaction commits. What one call leaves is run one
        after the other. A failure is logged. Where nothing can come after the answer (WSGI, management commands), it
        runs just before.

        Raises Overloaded when too much waits in this process, RuntimeError once the call is answered, TypeError for
        what cannot be called.
        """
        if not callable(fn):
            raise TypeError(f"background() takes a function and its arguments, not {type(fn).__name__}")
        if self._call.root.outcome is not None:
            raise RuntimeError("The call was answered before this background work was left")
        job = Job(fn, args, kwargs, self._call.server.ports.background.take())
        if self.jobs is None:
            self._call.fate.leave([job])
        else:
            self.jobs.append(job)

    def at_end(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Have `fn` run when `state` ends, to close what is kept there: with the session, as far as this process knows
        it, or with the process; without a session (stateless era) with this run of the handler, however that ends.

        It runs on the event loop if it is async, else on a lane; the last that was left first, each for 5 seconds at
        most. A failure is logged. From any thread.

        Raises RuntimeError when the session is over, and under WSGI, where an event loop ends with its request; and
        TypeError for what cannot be called.
        """
        if not callable(fn):
            raise TypeError(f"at_end() takes a function and its arguments, not {type(fn).__name__}")
        call, session = self._call, self._call.connection.session
        if session is None:
            self.farewells = farewells = self.farewells or Farewells()
        elif call.connection.streams:
            farewells = session.farewells
            keep(farewells, self._loop, call.server.ports.at_end)
        else:
            raise RuntimeError("Nothing can be left for the end of a session under WSGI: its event loops do not last")
        farewells.add(self._loop, call.server.executor, fn, *args, **kwargs)

    async def close_stream(self, *, retry: float = 1.0) -> bool:
        """Close the connection on which the client waits, and ask it to come back after `retry` seconds for what is
        said meanwhile; the call goes on. For work that takes longer than a connection should be held open.

        True when it was closed. Otherwise nothing happens: in revisions without it, on transports that cannot be
        resumed, and while the client is away (2025-11-25, basic/transports, sending messages to the server).
        Raises ValueError for a negative `retry`.
        """
        if retry < 0:
            raise ValueError("retry is a number of seconds")
        return await self._here(self._close_stream(retry))

    async def _close_stream(self, retry: float) -> bool:
        call = self._call
        return call.revision.polling and not call.cancelled and call.outbox.release(retry)

    @property
    def replaying(self) -> bool:
        """Is the handler repeating an earlier round (stateless era)? Log messages are held back meanwhile."""
        return self._conversation is not None and self._conversation.replaying

    @property
    def unanswered(self) -> Replay | None:
        """The conversation, if it goes on in another round only."""
        talk = self._conversation
        return talk if isinstance(talk, Replay) and talk.unfinished else None

    async def elicit(self, message: str, schema: Any = bool, *, key: str | None = None) -> Answer[Any]:
        """Ask the user. `schema` says what for: bool, str, int, float, Literal, Enum, a list of those two, a
        dataclass, TypedDict or pydantic model with flat fields, a Django Form or ModelForm (a class, or an unbound
        instance); None asks for consent only. A form cleans the answer itself: its `cleaned_data` is the answer's
        `data`, and the bound form its `form`.

        In the stateless era the handler runs again from its first line once the answer is there: keep what comes
        before free of side effects, or wrap it in `once`. `key` names the question, which keeps its answer through
        changes around it.

        Raises MissingClientCapability when the client cannot ask, Unanswered when no valid answer comes.
        """
        self.require_no_transaction()
        answer: Answer[Any] = await self._ask(await self._here(form_question(self._call, message, schema, key)))
        return answer

    async def elicit_url(self, message: str, url: Any, *, key: str | None = None) -> Answer[None]:
        """Ask the user to open a page, for what must not pass through the client (client/elicitation, URL mode).

        `url` is a page of this site: the name of a view, a path, or an object with `get_absolute_url()`. Nobody but the
        user of this call gets there by the link; the page finds in its query string, as `next`, where it has to send
        the user when all is done, and then an accepted answer comes. For a page elsewhere `url` is a function that
        takes this address of return and gives the page's, with the same checks. A URL with a scheme is sent as it is:
        then accepting is consent to open it, and no more is known.

        Raises MissingClientCapability when the client opens no pages, Unanswered when nobody comes back in time, or
        when the caller is no user of the site.
        """
        if is_address(url):
            question = url_question(self._call.revision, message, url, key)
        else:
            self.require_no_transaction()
            if self._pages is None:
                self._pages = Counter()
            question = await self._here(page_question(self._call, self._talk(), message, url, key=key, met=self._pages))
        answer: Answer[None] = await self._ask(question)
        return answer

    async def sample(
        self,
        messages: Said | Sequence[Said],
        *,
        max_tokens: int = MAX_TOKENS,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: str | Sequence[str] | Mapping[str, Any] | None = None,
        include_context: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        tools: "Sequence[Offered] | None" = None,
        tool_choice: str | None = None,
        max_iterations: int = MAX_ITERATIONS,
        result_type: Any = None,
        key: str | None = None,
    ) -> Sample[Any]:
        """Ask the client's model for a message of `max_tokens` at most. A plain string is a message of the user's.

        `tools` are what the model may use: names of the server's tools, functions, definitions. What it uses is run,
        and it is asked again with the results, `max_iterations` times at most; then it must answer without. With 0,
        and where it uses a definition, `tool_uses` are handed back. `result_type` makes `result` a value of that type,
        read from JSON in the answer; an answer that does not fit is asked for again. `model_preferences` are the
        protocol's, or names of models, the best first.

        Raises MissingClientCapability when the client has no model for this, Unanswered when no valid answer comes.
        """
        sampling = await prepared(
            self,
            messages,
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            temperature=temperature,
            stop_sequences=stop_sequences,
            model_preferences=model_preferences,
            include_context=include_context,
            metadata=metadata,
            tools=tools,
            tool_choice=tool_choice,
            max_iterations=max_iterations,
            result_type=result_type,
            key=key,
        )
        return await sampling.run()

    async def list_roots(self, *, key: str | None = None) -> list[Root]:
        """Ask the client where it works."""
        roots: list[Root] = await self._ask(roots_question(key))
        return roots

    async def gather(self, *branches: Awaitable[Any]) -> list[Any]:
        """Run several questions or calls side by side; in the stateless era one round asks them all."""
        return await gather(*branches)

    async def once(self, key: str, fn: Callable[[], Any], *, durable: bool = False) -> Any:
        """Run `fn` (plain or async) once per conversation and keep its JSON value, so that the rounds that follow do
        not repeat it. Each key may be used once in a call. A plain `fn` runs on the call's lane, where the ORM works,
        as plain handlers do.

        That is not at-most-once: a round that is sent again runs `fn` again, and a failure is not kept. With `durable`
        it is: a row is claimed before `fn` begins, and no repetition of the request begins it again. It gets the same
        value instead, or the same ToolError; or OutcomeUnknown, a ToolError, when `fn` failed otherwise, was cancelled
        or went down with its process. Not inside a transaction, and `fn` must not ask.
        """
        return await self._here(self._once(key, fn, durable))

    async def _once(self, key: str, fn: Callable[[], Any], durable: bool) -> Any:
        async def run() -> Any:
            value = fn() if asyncio.iscoroutinefunction(fn) else await self._call.server.executor.attend(fn)
            return to_json(await value if asyncio.iscoroutine(value) else value)

        if durable:
            self.require_no_transaction(durable=True)
        return await self._talk().once(key, run, durable=durable)

    @property
    def sync(self) -> SyncContext:
        """The same for handlers that are plain functions."""
        return SyncContext(self)

    async def _emit(self, method: str, params: dict[str, Any]) -> None:
        if self._call.cancelled:
            return  # others of its batch may still be speaking on the stream
        await self._here(self._call.outbox.put(jsonrpc.notification(method, params)))

    async def _ask(self, question: Question) -> Any:
        self.require_no_transaction()
        self._call.server.executor.rest()
        return await self._here(self._talk().ask(question))

    def require_no_transaction(self, *, durable: bool = False) -> None:
        """Raise Unanswered inside a transaction, the call's or one of the current thread's: a question would hold it
        open, and what is done once and `durable` could be rolled back with it.
        """
        if self.in_transaction or self._call.server.executor.asking_is_unsafe():
            raise Unanswered(ONCE_IN_TRANSACTION if durable else ASKED_IN_TRANSACTION)

    def parking(self, *, always: bool = False) -> AbstractContextManager[None]:
        """For a plain function's thread, around a question that is waited for: `always`, or where the era does."""
        if always or self._talk().waits:
            return self._call.server.executor.parking()
        return nullcontext()

    def _talk(self) -> Conversation:
        if self._conversation is None:
            self._conversation = self._call.era.conversation(self._call)
        return self._conversation

    async def _here(self, work: Coroutine[Any, Any, T]) -> T:
        """On the loop of the call, also when a thread's own loop (asgiref's async_to_sync) runs us."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

"""Context: the object for handlers to read their call and reach the client."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.sampling_types import SamplingInput
from mcp_django.schema import to_json
from mcp_django.server.callables import is_async
from mcp_django.server.calls.background import BackgroundJob
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.cleanup import CleanupCallbacks, register_for_shutdown
from mcp_django.server.context.around import find_around, run_within
from mcp_django.server.context.call_info import CallInfo
from mcp_django.server.context.conversation import (
    REQUEST_IN_TRANSACTION_MESSAGE,
    ClientConversation,
    InputRequest,
    InputUnavailable,
    ReplayConversation,
    gather,
)
from mcp_django.server.context.elicitation import (
    build_form_request,
    build_page_request,
    build_url_request,
    is_absolute_url,
)
from mcp_django.server.context.idempotency import ONCE_IN_TRANSACTION_MESSAGE
from mcp_django.server.context.notifications import (
    LOG_MESSAGE_METHOD,
    build_log_params,
    build_progress_params,
    check_notification_method,
)
from mcp_django.server.context.responses import ElicitationResult, Root, build_roots_request
from mcp_django.server.context.sampling import (
    DEFAULT_MAX_ITERATIONS,
    DEFAULT_MAX_TOKENS,
    OfferedTool,
    SamplingResult,
    prepare_sampling,
)
from mcp_django.server.context.sync_context import SyncContext
from mcp_django.server.ports import ContextView
from mcp_django.server.primitives.base import Primitive

T = TypeVar("T")


class Context(CallInfo, ContextView):
    """API of one call for handlers.

    Declare a parameter of this type, with any name, to receive it. The parameter never appears in a schema. Sync
    handlers use the same methods on `ctx.sync`, which block in the handler's own thread.
    """

    __slots__ = (
        "_last_progress",
        "_page_counts",
        "cleanup_callbacks",
        "conversation",
        "in_transaction",
        "is_outermost",
        "is_rolled_back",
        "jobs",
        "sampling_scopes",
    )

    def __init__(
        self, call: Call, primitive: Primitive | None = None, conversation: ClientConversation | None = None
    ) -> None:
        super().__init__(call, primitive)
        self.conversation = conversation
        """Conversation of the call, for the engine; None before its first request. See `get_conversation`."""
        self._last_progress: float | None = None
        self.sampling_scopes: Counter[str] | None = None
        """Number of samplings by the name of their scope; None before the first one."""
        self._page_counts: Counter[str] | None = None
        self.cleanup_callbacks: CleanupCallbacks | None = None
        """Cleanup callbacks of a call without a session."""
        self.in_transaction = False
        """True if the handler runs in a transaction of the call."""
        self.is_outermost = False
        """True if the value of the handler is the result of a call of a tool."""
        self.is_rolled_back = False
        """True if the handler has rolled its work back, and returns a result: after a dry run."""
        self.jobs: list[BackgroundJob] | None = None
        """Background jobs of the running handler, held until it succeeds; else None."""

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send a progress notification, if the client requested progress.

        Values that do not exceed the last one are skipped: progress must increase (basic/utilities/progress).
        """
        params = build_progress_params(self.call, self._last_progress, progress, total, message)
        if params is not None:
            self._last_progress = progress
            self.call.record.progress = (progress, total)
            await self._emit("notifications/progress", params)

    async def log(self, level: str, data: object, *, logger: str | None = None) -> None:
        """Send a log message to the client, if it requested this level.

        `data` is any JSON value. Do not log secrets.
        """
        params = build_log_params(self.call, level, data, logger)
        if params is not None and not self.replaying:
            await self._emit(LOG_MESSAGE_METHOD, params)

    async def debug(self, data: object, *, logger: str | None = None) -> None:
        await self.log("debug", data, logger=logger)

    async def info(self, data: object, *, logger: str | None = None) -> None:
        await self.log("info", data, logger=logger)

    async def notice(self, data: object, *, logger: str | None = None) -> None:
        await self.log("notice", data, logger=logger)

    async def warning(self, data: object, *, logger: str | None = None) -> None:
        await self.log("warning", data, logger=logger)

    async def error(self, data: object, *, logger: str | None = None) -> None:
        await self.log("error", data, logger=logger)

    async def critical(self, data: object, *, logger: str | None = None) -> None:
        await self.log("critical", data, logger=logger)

    async def alert(self, data: object, *, logger: str | None = None) -> None:
        await self.log("alert", data, logger=logger)

    async def emergency(self, data: object, *, logger: str | None = None) -> None:
        await self.log("emergency", data, logger=logger)

    async def notify(self, method: str, params: JSONObject | None = None) -> None:
        """Send a custom notification; `method` must start with `notifications/`."""
        check_notification_method(method)
        await self._emit(method, params or {})

    def background(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> None:
        """Run `fn` after the response, on the event loop or a thread. Thread-safe.

        A job of a handler runs only if the handler returns and its transaction commits. The jobs of one call run one
        after the other, and failures are logged. Under WSGI and in management commands they run just before the
        response.

        Raises:
            Overloaded: too many jobs wait in this process.
            RuntimeError: the call is already answered.
            TypeError: `fn` is not callable.
        """
        if not callable(fn):
            raise TypeError(f"background() takes a function and its arguments, not {type(fn).__name__}")
        if self.call.record.outcome is not None:
            raise RuntimeError("The call was answered before this background work was added")
        run_around = partial(run_within, find_around(self.call), self)
        job = BackgroundJob(fn, args, kwargs, self.call.server.ports.background.acquire(), run_around)
        if self.jobs is None:
            self.call.record.add_jobs([job])
        else:
            self.jobs.append(job)

    def add_cleanup(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> None:
        """Register a cleanup callback for resources kept in `state`. Thread-safe.

        With a session it runs when this process discards the session or exits. Without a session (stateless era) it
        runs when this run of the handler ends, even with an error.

        Async callbacks run on the event loop, sync ones on a thread, in reverse order of registration. Each has 5
        seconds; failures are logged.

        Raises:
            RuntimeError: the session has ended, or under WSGI, where an event loop ends with its request.
            TypeError: `fn` is not callable.
        """
        if not callable(fn):
            raise TypeError(f"add_cleanup() takes a function and its arguments, not {type(fn).__name__}")

        call, session = self.call, self.call.connection.session
        if session is None:
            self.cleanup_callbacks = callbacks = self.cleanup_callbacks or CleanupCallbacks()
        elif call.connection.supports_streaming:
            callbacks = session.cleanup_callbacks
            register_for_shutdown(callbacks, self._loop, call.server.ports.add_shutdown_callback)
        else:
            raise RuntimeError("Sessions have no cleanup callbacks under WSGI: an event loop ends with its request")
        callbacks.add(self._loop, call.server.ports.executor, fn, *args, **kwargs)

    async def close_stream(self, *, retry: float = 1.0) -> bool:
        """Close the connection, for the client to reconnect after `retry` seconds.

        The call continues. Use it for work that takes longer than a connection should stay open. Messages are buffered
        until the client reconnects (2025-11-25, basic/transports, sending messages to the server).

        Returns True if the connection was closed. Nothing happens in revisions without this feature, on transports
        without resumption, and while the client is disconnected. Raises ValueError for a negative `retry`.
        """
        if retry < 0:
            raise ValueError("retry is a number of seconds")
        return await self.run_on_call_loop(self._close_stream(retry))

    async def _close_stream(self, retry: float) -> bool:
        call = self.call
        return call.revision.polling and not call.record.cancelled and call.outbox.disconnect_reader(retry)

    @property
    def replaying(self) -> bool:
        """True while the handler repeats an earlier round; log messages are held back."""
        return self.conversation is not None and self.conversation.replaying

    @property
    def unfinished_conversation(self) -> ReplayConversation | None:
        """Conversation that needs another round; None for other conversations."""
        conversation = self.conversation
        return (
            conversation if isinstance(conversation, ReplayConversation) and conversation.needs_another_round else None
        )

    async def elicit(
        self, message: str, schema: object = bool, *, key: str | None = None, strict: bool = False
    ) -> ElicitationResult[Any]:
        """Ask the user for a value (client/elicitation, form mode).

        `schema` is bool, str, int, float, a Literal, an Enum, a list of those two, or a dataclass, TypedDict or
        pydantic model with flat fields. It can also be a Django Form or ModelForm (a class, or an unbound instance).
        None asks for consent only. A Django form cleans the answer: `data` holds its `cleaned_data`, and `form` the
        bound form.

        In the stateless era the handler runs again from its first line when the answer arrives. Keep the code before
        the call free of side effects, or wrap it in `run_once`. `key` names the request, so that its answer survives
        changes of the code around it.

        On servers with the extension for apps, clients without elicitation show the question in an app. With `strict`
        only elicitation itself counts, which a model cannot answer.

        Raises:
            MissingClientCapability: the client does not support elicitation.
            InputUnavailable: no valid answer arrives.
        """
        self.check_no_transaction()
        request = await self.run_on_call_loop(build_form_request(self.call, message, schema, key))
        answer: ElicitationResult[object] = await self.request_input(request._replace(strict=strict))
        return answer

    async def elicit_url(self, message: str, url: Any, *, key: str | None = None) -> ElicitationResult[None]:
        """Ask the user to open a page, for data that the client must not see (URL mode).

        `url` is a page of this site: the name of a view, a path, or an object with `get_absolute_url()`. Only the user
        of this call can open the link. The page receives a return address as `next` in its query string. Once the user
        returns there, the result is an accepted one.

        For a page of another site, pass a function that takes the return address and returns the URL of the page. The
        same checks apply. A URL with a scheme is sent unchanged: accepting is consent to open it, and completion is not
        reported.

        Raises:
            MissingClientCapability: the client does not support URL mode.
            InputUnavailable: the user does not return in time, or the caller has no user on this site.
        """
        if is_absolute_url(url):
            question = build_url_request(self.call.revision, message, url, key)
        else:
            self.check_no_transaction()
            if self._page_counts is None:
                self._page_counts = Counter()
            question = await self.run_on_call_loop(
                build_page_request(self.call, self.get_conversation(), message, url, key=key, counts=self._page_counts)
            )
        answer: ElicitationResult[None] = await self.request_input(question)
        return answer

    async def sample(
        self,
        messages: SamplingInput | Sequence[SamplingInput],
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: str | Sequence[str] | JSONMapping | None = None,
        include_context: str | None = None,
        metadata: Mapping[str, object] | None = None,
        tools: Sequence[OfferedTool] | None = None,
        tool_choice: str | None = None,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
        result_type: object = None,
        key: str | None = None,
    ) -> SamplingResult[Any]:
        """Request a message of at most `max_tokens` tokens from the client's model.

        A plain string is a user message. `tools` are names of the server's tools, functions or definitions that the
        model may use. Used tools run, and the model continues with their results, for at most `max_iterations`
        iterations. Then it must answer without tools. With 0 iterations, and for definitions, the result returns the
        `tool_uses` to the handler.

        `result_type` converts JSON in the answer to a value in `result`; an invalid answer is requested again.
        `model_preferences` are those of the protocol, or names of models, the best first.

        Raises:
            MissingClientCapability: the client does not support this kind of sampling.
            InputUnavailable: no valid answer arrives.
        """
        sampling = await prepare_sampling(
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
        """Request the client's roots."""
        roots: list[Root] = await self.request_input(build_roots_request(key))
        return roots

    async def gather(self, *branches: Awaitable[object]) -> list[Any]:
        """Run requests or calls concurrently; in the stateless era in one round."""
        return await gather(*branches)

    async def run_once(self, key: str, fn: Callable[[], object], *, durable: bool = False) -> Any:
        """Run `fn` (sync or async) once per conversation and keep its JSON value.

        The following rounds skip the step. Each key may be used once in a call. A sync `fn` runs on the thread of the
        call, where the ORM works, like a sync handler.

        This is not at-most-once: a repeated round runs `fn` again, and a failure is not kept. With `durable`, a row is
        claimed before `fn` starts, and a repeated request does not start it again. The repetition gets the same value
        or the same ToolError. It gets OutcomeUnknown, a ToolError, if `fn` failed otherwise, was cancelled, or died
        with its process.

        A durable step cannot run inside a transaction, and `fn` must not send requests to the client.
        """
        return await self.run_on_call_loop(self.run_step(key, fn, durable))

    async def run_step(self, key: str, fn: Callable[[], object], durable: bool) -> Any:
        """Run a step on the loop of the call; see `run_once`."""

        async def run() -> Any:
            value = fn() if is_async(fn) else await self.call.server.ports.executor.run_during_wait(fn)
            return to_json(await value if asyncio.iscoroutine(value) else value)

        if durable:
            self.check_no_transaction(durable=True)
        return await self.get_conversation().run_once(key, run, durable=durable)

    @property
    def sync(self) -> SyncContext:
        """Blocking version of this Context, for sync handlers."""
        return SyncContext(self)

    async def _emit(self, method: str, params: JSONObject) -> None:
        if self.call.record.cancelled:
            return  # other calls of the batch may still use the stream
        await self.run_on_call_loop(self.call.outbox.put(jsonrpc.notification(method, params)))

    async def request_input(self, request: InputRequest) -> Any:
        """Send a request to the client and return its parsed response, for extensions; raises like `elicit`."""
        self.check_no_transaction()
        self.call.server.ports.executor.release_thread()
        return await self.run_on_call_loop(self.get_conversation().request_input(request))

    def check_no_transaction(self, *, durable: bool = False) -> None:
        """Raise InputUnavailable inside a transaction of the call or the thread.

        A request to the client would hold the transaction open. The effects of a `durable` step could be rolled back
        with it.
        """
        if self.in_transaction or self.call.server.ports.executor.is_in_transaction():
            raise InputUnavailable(ONCE_IN_TRANSACTION_MESSAGE if durable else REQUEST_IN_TRANSACTION_MESSAGE)

    def blocking_wait(self, *, always: bool = False) -> AbstractContextManager[None]:
        """Return the context for a blocking wait in the thread of a sync handler.

        It blocks with `always`, or if the era waits for responses.
        """
        if always or self.get_conversation().waits_for_response:
            return self.call.server.ports.executor.blocking_wait()
        return nullcontext()

    def get_conversation(self) -> ClientConversation:
        """Return the conversation of the call, which begins with the first request to the client."""
        if self.conversation is None:
            self.conversation = self.call.era.start_conversation(self.call)
        return self.conversation

    async def run_on_call_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop of the call, from any loop (such as `async_to_sync`)."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

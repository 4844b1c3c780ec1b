"""What a handler is given: who asks, and the ways to talk back while it runs."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from ..protocol import jsonrpc
from ..protocol.sampling import Said
from ..protocol.trace import TraceContext
from ..schema import to_json
from .answers import Answer, Root, roots_question
from .ask import ASKED_IN_TRANSACTION, Conversation, Question, Replay, Unanswered, gather
from .call import Call
from .elicitation import form_question, is_address, page_question, url_question
from .once import ONCE_IN_TRANSACTION
from .ports import Principal
from .sampling import MAX_ITERATIONS, MAX_TOKENS, Sample, prepared
from .session import Session
from .sync import SyncContext
from .telling import LOGGED, log_params, progress_params, require_notification

if TYPE_CHECKING:
    from .primitives import Primitive
    from .server import Server
    from .toolbox import Offered

T = TypeVar("T")


class Context:
    """One per call. Declare a parameter of this type, under any name, and it is filled in; it never shows in a schema.

    Handlers written with `def` use the same names on `ctx.sync`, which wait in the handler's own thread.
    """

    __slots__ = (
        "_call",
        "_conversation",
        "_loop",
        "_pages",
        "_primitive",
        "_progress",
        "_samples",
        "_state",
        "in_transaction",
    )

    def __init__(
        self, call: Call, primitive: "Primitive | None" = None, conversation: Conversation | None = None
    ) -> None:
        self._call, self._primitive, self._conversation = call, primitive, conversation
        self._loop = asyncio.get_running_loop()
        self._progress: float | None = None
        self._state: dict[str, Any] | None = None
        self._samples: Counter[str] | None = None
        self._pages: Counter[str] | None = None
        self.in_transaction = False
        """Is the handler running as one transaction of the call's?"""

    @property
    def principal(self) -> Principal:
        """Who asks, with scopes and claims."""
        return self._call.connection.principal

    @property
    def user(self) -> Any:
        """The Django user, or None when nobody is logged in."""
        return self._call.connection.principal.user

    @property
    def request(self) -> Any:
        """The Django HttpRequest, on both doors; None on transports without HTTP."""
        return self._call.request

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers by lower-case name, credentials left out; empty on transports without them."""
        return self._call.headers

    @property
    def session(self) -> Session | None:
        """The session (handshake era), or None (stateless era)."""
        return self._call.connection.session

    @property
    def server(self) -> "Server":
        return self._call.server

    @property
    def revision(self) -> str:
        """The protocol revision of this call, as on the wire."""
        return self._call.revision.version

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """What the URL pattern captured, such as a tenant's slug."""
        return self._call.kwargs

    @property
    def name(self) -> str | None:
        """The name of the tool, prompt or resource that runs."""
        return None if self._primitive is None else self._primitive.name

    @property
    def tool_name(self) -> str | None:
        """The tool's name; None in a resource, prompt or completion."""
        primitive = self._primitive
        return primitive.name if primitive is not None and primitive.kind == "tool" else None

    @property
    def call_id(self) -> jsonrpc.Id | None:
        """The request's id, as the client chose it."""
        return self._call.id

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The `metadata=` that the tool and its toolset were registered with."""
        return {} if self._primitive is None else self._primitive.metadata

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's `_meta`."""
        return self._call.meta

    @property
    def trace(self) -> TraceContext | None:
        """The trace that the client says this call belongs to (W3C Trace Context); None when it names none."""
        return self._call.trace

    @property
    def state(self) -> dict[str, Any]:
        """Scratch space: the session's in the handshake era (in this process), this call's in the stateless era."""
        if self._state is None:
            session = self._call.connection.session
            self._state = {} if session is None else session.state
        return self._state

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan yielded."""
        return self._call.server.lifespan.state(self._loop)

    @property
    def client_info(self) -> Mapping[str, Any]:
        """The client's name and version, as it says; may be empty."""
        return self._call.client_info

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """What the client declared it can do."""
        return self._call.capabilities

    def supports(self, capability: str) -> bool:
        """Can the client do this? A dotted path, such as `"sampling"` or `"elicitation.url"`."""
        needed: dict[str, Any] = {}
        for part in reversed(capability.split(".")):
            needed = {part: needed}
        return self._call.supports(needed)

    @property
    def cancelled(self) -> bool:
        """Was this call given up? For loops in threads, which nothing can interrupt."""
        return self._call.cancelled

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

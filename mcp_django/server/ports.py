"""Ports: the interfaces that the engine needs from outside.

`wiring` fills them with the Django side (rows, threads, keys, permissions). Tests fill them with plain objects. The
engine imports no implementation.

The module is below the rest of the engine. It names the engine's values (calls, sessions, primitives) for types only.
"""

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams, MCPError
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.revisions import Revision

if TYPE_CHECKING:
    from mcp_django.server.calls.call import Call
    from mcp_django.server.calls.session import ServerSession
    from mcp_django.server.primitives.base import Primitive

T = TypeVar("T")


class Overloaded(Exception):
    """A limit is reached. Raised at once, without waiting.

    `retry_after` is in seconds. `status` is the HTTP status: 503 when the process is full, 429 when the caller exceeds
    a rate.
    """

    def __init__(
        self, text: str = "The server is busy; try again later", *, retry_after: float = 1.0, status: int = 503
    ) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        self.status = status


class StateTooLarge(Exception):
    """The data of a conversation no longer fits into a sealed state."""


class Principal(Protocol):
    """The authenticated caller. Immutable, and the same on every transport."""

    @property
    def key(self) -> str:
        """Identity `issuer|subject|client`, the key of sessions, states and limits."""

    @property
    def owner(self) -> str | None:
        """Identity `issuer|subject`, which owns persistent data across clients.

        None for an anonymous caller, who owns no data.
        """

    @property
    def user(self) -> Any:
        """The Django user, or None."""

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes that the user delegated to this client."""

    @property
    def expires_at(self) -> float | None:
        """Expiry of the credential in seconds since the epoch, or None."""


P_contra = TypeVar("P_contra", bound=Principal, contravariant=True)


@dataclass(frozen=True, slots=True)
class Decision:
    """The permission decision: ALLOW, HIDDEN or `step_up(scopes)`."""

    visible: bool
    """True if the primitive is shown in lists."""
    scopes: tuple[str, ...] = ()
    """Scopes that a step-up must obtain before use. Empty if usable now."""

    @property
    def allowed(self) -> bool:
        return self.visible and not self.scopes


ALLOW = Decision(True)
HIDDEN = Decision(False)


def step_up(scopes: Sequence[str]) -> Decision:
    """Return a decision for a visible primitive that requires `scopes`."""
    return Decision(True, tuple(sorted(scopes)))


class PermissionTarget(Protocol):
    """A primitive, or the requirements of a class for all its primitives."""

    @property
    def permission(self) -> Any: ...
    @property
    def scopes(self) -> Sequence[str]: ...
    @property
    def key(self) -> str: ...


class Authorizer(Protocol[P_contra]):
    """The one permission decision for list, call, read, get and complete.

    Its principals are of the type that the authentication of the same project creates.
    """

    @property
    def version(self) -> Hashable | None:
        """Version of the results of `is_restricted`.

        None while unknown; then every primitive counts as restricted.
        """

    async def refresh(self) -> None:
        """Load the current version. Raises Overloaded."""

    def is_restricted(self, primitive: PermissionTarget) -> bool:
        """Return True if the decision can depend on the caller or the time.

        False keeps permission checks off the hot path.
        """

    async def decide(self, principal: P_contra, primitive: "Primitive", scopes: Collection[str] = ()) -> Decision:
        """Return the decision about a primitive, with extra `scopes`. Raises Overloaded."""

    async def count_use(self, principal: P_contra, tool: "Primitive") -> float | None:
        """Count one use of a tool. Returns seconds to wait if its rate is exhausted."""

    def is_allowed(self, principal: P_contra, target: PermissionTarget, *, after_step_up: bool = False) -> bool:
        """Return True if `principal` may use the target now.

        With `after_step_up`, return True if a step-up would be enough. May block.
        """

    async def find_hidden_keys(self, principal: P_contra, primitives: "Sequence[Primitive]") -> frozenset[str]:
        """Return the keys of those `primitives` that `principal` must not see."""


class SessionStore(Protocol):
    """Sessions of the handshake era."""

    def peek(self, key: str, owner: str) -> "ServerSession | None":
        """Return the session if this process has it cached, without I/O.

        A session of another owner counts as unknown.
        """

    async def load(self, key: str, owner: str) -> "ServerSession | None":
        """Return the session, or None if unknown, ended, expired or another owner's."""

    async def open(
        self,
        *,
        owner: str,
        revision: Revision,
        client_info: JSONObject,
        capabilities: JSONObject,
        server: str,
        user_id: Any = None,
    ) -> "ServerSession":
        """Create a session. Raises Overloaded above the limit of all sessions."""

    async def save(self, session: "ServerSession") -> None:
        """Save the log level and the `initialized` flag."""

    async def end(self, session: "ServerSession", reason: str) -> None:
        """End the session here and in the store, and cancel its running calls."""

    async def cancel(self, session: "ServerSession", id: jsonrpc.Id) -> None:
        """Cancel the call with this id in any process, if it is running."""

    def touch(self, session: "ServerSession") -> None:
        """Record that the session was used now. Writes at most once a minute."""


class PendingRequests(Protocol):
    """Requests from the server to clients of the handshake era, across processes.

    It creates their ids, and forwards responses that reach another process than the sender of the request.
    """

    def new_id(self, session: "ServerSession") -> str:
        """Create a request id that is unique across processes."""

    def is_valid_id(self, session: "ServerSession", id: jsonrpc.Id) -> bool:
        """Return True if a process may have created this id for a pending request."""

    def accept_forwarded(self, session: "ServerSession") -> AbstractAsyncContextManager[None]:
        """Route forwarded responses to `session.answer` while the context is active.

        Enter it before the request is sent.
        """

    async def forward(self, session: "ServerSession", response: jsonrpc.Response) -> None:
        """Forward a response to the process that sent the request.

        Call it once for each id. Raises Overloaded when forwarding fails now.
        """


class ListDigestStore(Protocol):
    """Digests of the lists that sessions have received."""

    def save(self, session: "ServerSession") -> None:
        """Merge `session.lists` into the stored digests. Does not wait."""

    async def load(self, session: "ServerSession") -> Mapping[str, str]:
        """Return the digests of the lists that the session received last, by kind."""


class Sealer(Protocol):
    """Authenticated encryption of data that clients carry for the server."""

    def seal(self, payload: JSONObject, binding: bytes, *, ttl: float) -> str:
        """Return a token that only `unseal` with the same binding can read.

        It is valid for `ttl` seconds. Raises StateTooLarge.
        """

    def unseal(self, token: Any, binding: bytes) -> JSONObject:
        """Return the payload. Raises InvalidParams, with the same text for every reason."""

    def build_error(self) -> InvalidParams:
        """Return the error of `unseal`, for callers that reject a token themselves."""


class IdempotencyStore(Protocol):
    """Operations that must happen at most once, across attempts and processes."""

    async def claim(self, name: str, *, owner: str, ttl: float) -> bool:
        """Claim the operation `name` permanently.

        Returns False if it was claimed before. Stored for `ttl` seconds.
        """

    async def record_outcome(self, name: str, outcome: JSONObject) -> None:
        """Store the outcome of an operation. Completes even if the caller is cancelled."""

    def mark_unknown(self, name: str) -> None:
        """Record that the outcome will stay unknown. Does not wait."""

    async def get_outcome(self, name: str) -> JSONObject | None:
        """Return the outcome, or None if none is stored."""

    async def consume(self, digest: str, *, ttl: float) -> bool:
        """Consume a token valid for `ttl` seconds. Returns False if already consumed."""


class AttemptControl(Protocol):
    """The attempt of a stored task, for which a call runs."""

    has_begun: bool
    """True once the function of the tool, or one of its dependencies, has been called."""

    @property
    def may_repeat(self) -> bool:
        """True if the tool may run again after this attempt."""

    def is_over(self) -> bool:
        """Return True if the attempt may write nothing more, because another one may run. Thread-safe."""

    async def confirm(
        self, databases: Sequence[str], call: "Call", build_result: Callable[[], JSONObject] | None
    ) -> None:
        """Confirm the attempt, as the last statement of the transaction of its tool.

        `databases` are those of the transaction. `build_result` returns the body of the result, which is stored in the
        same transaction; None for a tool that runs inside another one. Raises CancelledError if the attempt is over.
        """

    def keep_result(self, call: "Call", build_result: Callable[[], JSONObject]) -> None:
        """Keep the body of the result of a plain function, with which its call ends. Called on its thread."""


class ExecutorLease(Protocol):
    """The resources of the executor that one call holds."""

    def close(self) -> None:
        """End the lease. Its thread returns to the pool once it is idle."""


class Executor(Protocol):
    """The thread pool for blocking code."""

    async def run(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run a plain function on a pool thread, in the caller's context variables.

        Raises Overloaded at once when the queue is full.
        """

    def acquire_lease(self, *, unbounded: bool = False) -> ExecutorLease:
        """Run thread-sensitive work of the current context (the async ORM) on one thread.

        The thread is leased at its first use. With `unbounded` the call may queue without limit, and the caller must
        apply its own timeout.
        """

    def context(self, *, unbounded: bool = False) -> AbstractContextManager[Any]:
        """Acquire a lease for a `with` block and close it afterwards."""

    def atomic(self, databases: Sequence[str]) -> AbstractAsyncContextManager[None]:
        """Open a transaction on each of `databases` around an `async with` block.

        It covers the ORM use of the current call. It commits when the block ends, and rolls back when the block raises
        or is cancelled.
        """

    async def run_within(
        self, factories: Sequence[Callable[[], AbstractContextManager[Any]]], run: Callable[[], Awaitable[T]]
    ) -> T:
        """Await `run` inside plain context managers, which the factories create, the first outermost.

        They are created, entered and left on the thread of the call, also if `run` is cancelled. `run` sees their
        context variables. Raises RuntimeError if a manager suppresses an exception.
        """

    def release_thread(self) -> None:
        """Return the current call's thread to the pool while the call waits."""

    def blocking_wait(self) -> AbstractContextManager[None]:
        """Release a thread's place in the pool while a plain function waits in it.

        Raises Overloaded when too many threads wait in this way.
        """

    async def run_during_wait(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run a function as `run` does.

        Inside `blocking_wait`, the waiting thread takes its place again to run it.
        """

    def is_in_transaction(self) -> bool:
        """Return True if the calling thread is in a transaction.

        A transaction must not stay open during a request to the client.
        """


class Outcome(StrEnum):
    """Result category of a finished call."""

    OK = "ok"
    TOOL_ERROR = "tool_error"
    """The tool reported an error, or its arguments were invalid."""
    INPUT_REQUIRED = "input_required"
    """A round ended with requests to the client (stateless era)."""
    ERROR = "error"
    """Protocol error: unknown, forbidden or malformed."""
    BUG = "bug"
    """Unexpected exception; the log contains it under its reference."""
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    """Cancelled by the client or the server."""
    OVERLOADED = "overloaded"
    """Refused or aborted because a limit is reached."""


class CallObservation(Protocol):
    """The observation of one call, in the task and the context variables of the call.

    Its methods raise nothing but the cancellation of that task.
    """

    async def start(self) -> None:
        """Prepare the observation, before the call runs."""

    async def finish(self, outcome: Outcome, problem: MCPError | Overloaded | None) -> None:
        """Finish the observation. `problem` is the error in the response, if any."""


class Observer(Protocol):
    """An observer of calls. Its failures never fail a call."""

    def observe(self, call: "Call") -> CallObservation | None:
        """Return an observation of a request, or None, the usual case, for none.

        Called for each request in the context of its transport. Returning None must cost next to nothing.
        """

    def record_outcome(self, call: "Call", outcome: Outcome, problem: MCPError | Overloaded | None) -> None:
        """Record an outcome.

        Called once for each request when its outcome is known, even if it never ran, and once for each notification.
        """


class ChangeFeed(Protocol):
    """Changes of one server: a feed of events, and the subscriptions of sessions."""

    def acquire_stream(self, owner: str) -> None:
        """Count one more open stream of a principal's key. Raises Overloaded."""

    def release_stream(self, owner: str) -> None:
        """Count one open stream less."""

    async def add_listener(self, callback: Callable[[str, Any], None]) -> Callable[[], None]:
        """Call `callback` on the running loop for each later change.

        The callback receives `"updated"` and `{"uri": ...}`, with an `"owner"` if the change concerns one owner only,
        or `"list_changed"` and `{"kind": "tools"}` (or prompts, resources), or `"extension"` and
        `{"field": ..., "key": ...}`. It may ignore other kinds. It must neither block nor raise.

        The callback is registered when this returns. Returns a function that removes it.
        """

    async def subscribe(self, call: "Call", uri: str) -> None:
        """Subscribe the session of `call` to changes of a resource.

        The subscription holds on any worker that has the session's stream. Subscribing twice has no effect. Raises
        InvalidParams above the limit.
        """

    async def unsubscribe(self, call: "Call", uri: str) -> None:
        """Unsubscribe the session. A missing subscription is ignored."""

    def send_stream_signal(self, call: "Call", uris: Sequence[str], *, opened: bool) -> None:
        """Send the project's signal that a stream opened or closed. Does not wait."""


class FrameworkForm(Protocol):
    """A framework's form that cleans its content itself. Its methods may block."""

    schema: JSONObject
    """Restricted JSON Schema that clients show."""
    identity: JSONObject
    """Properties that stay equal while the form is the same form."""

    def read(self, content: Any, *, is_validated: bool = False) -> tuple[Any, Any]:
        """Return the cleaned data and the bound form.

        With `is_validated`, the same content was found valid before. Raises ArgumentError with a text for the user.
        """


FormResolver = Callable[[Any], Callable[[], FrameworkForm] | None]
"""Resolver of framework forms.

Returns a function that compiles the form (and may block), or None for other values.
"""


class ElicitationPages(Protocol):
    """Pages of the site that clients send users to (client/elicitation, URL mode)."""

    def build_url(self, call: "Call", target: Any, id: str, *, ttl: float) -> str:
        """Return the absolute URL of a page that redirects to `target`.

        The page admits only the user of the call. It is valid for `ttl` seconds. May block. Raises Unanswered when no
        URL is possible.
        """

    async def wait_for_return(self, id: str, *, timeout: float) -> bool:
        """Wait until the user has returned. Returns False after `timeout` seconds."""


class PrincipalType:
    """Base of classes of principals; a parameter annotated with one receives the caller of the call."""

    __slots__ = ()


class ContextView:
    """Base of `context.Context`: the part that injected parameters are filled from.

    A parameter annotated with a subclass receives the context of the call.
    """

    __slots__ = ()

    @property
    def principal(self) -> Principal:
        """Principal of the caller."""
        raise NotImplementedError

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the request, by name in any case, without credentials."""
        raise NotImplementedError


Lifespan = Callable[[Any], Any]
"""Function of a server that returns an async context manager (`ctx.lifespan`)."""

ExceptionTranslator = Callable[[Exception], Exception | None]
"""Translator of exceptions into an MCPError or ToolError, or None for a bug."""
UnavailabilityReporter = Callable[[str, BaseException], Overloaded | None]
"""Reporter of a failed operation and its exception; it logs and returns a failure.

It returns None for a bug.
"""

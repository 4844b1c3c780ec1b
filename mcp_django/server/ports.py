"""What the engine needs from outside, on one page.

`wiring` fills these seams with the Django side (rows, lanes, keys, permissions); tests fill them with plain objects.
Nothing in the engine imports the implementations.
"""

import secrets
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams, MCPError
from mcp_django.protocol.revisions import Revision

if TYPE_CHECKING:
    from mcp_django.server.calls.call import Call
    from mcp_django.server.calls.outcome import Outcome
    from mcp_django.server.calls.session import Session
    from mcp_django.server.primitives.base import Primitive

T = TypeVar("T")


class Overloaded(Exception):
    """A limit is reached. Said at once, never after a wait; `retry_after` is in seconds.

    `status` is the HTTP status: 503 when the process is full, 429 when the caller asks for too much.
    """

    def __init__(
        self, text: str = "The server is busy; try again later", *, retry_after: float = 1.0, status: int = 503
    ) -> None:
        super().__init__(text)
        self.retry_after, self.status = retry_after, status


class StateTooLarge(Exception):
    """What a conversation has to remember no longer fits into a sealed state."""


class Principal(Protocol):
    """Who asks. Immutable, and the same on every transport."""

    @property
    def key(self) -> str:
        """`issuer|subject|client`: what sessions, sealed states and limits are bound to."""

    @property
    def owner(self) -> str | None:
        """`issuer|subject`: whose lasting data it may see, whichever client is used. None for nobody in particular, who
        owns nothing.
        """

    @property
    def user(self) -> Any:
        """The Django user, or None."""

    @property
    def scopes(self) -> frozenset[str]:
        """What the user delegated to this client."""

    @property
    def expires_at(self) -> float | None:
        """When the credential expires, in seconds since the epoch; None when it does not."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to "may this principal use this primitive?": ALLOW, HIDDEN or `step_up(scopes)`."""

    visible: bool
    """Shown in lists."""
    scopes: tuple[str, ...] = ()
    """The scopes a step-up has to bring before the primitive may be used; empty when it may be used now."""

    @property
    def allowed(self) -> bool:
        return self.visible and not self.scopes


ALLOW = Decision(True)
HIDDEN = Decision(False)


def step_up(scopes: Sequence[str]) -> Decision:
    """Visible, and usable once the token also has `scopes`."""
    return Decision(True, tuple(sorted(scopes)))


class Guarded(Protocol):
    """What a decision looks at: a primitive, or what a class asks for all that it declares."""

    @property
    def permission(self) -> Any: ...
    @property
    def scopes(self) -> "Sequence[str]": ...
    @property
    def key(self) -> str: ...


class Authorizer(Protocol):
    """The one permission decision, for list, call, read, get and complete alike."""

    @property
    def version(self) -> Hashable | None:
        """Changes with what `guards` says. None while that has to be found out: until then everything is guarded."""

    async def refresh(self) -> None:
        """Find out what holds now. Raises Overloaded."""

    def guards(self, primitive: "Guarded") -> bool:
        """Can the decision depend on who asks, or when? False keeps permission checks off the hot path."""

    async def decide(self, principal: Principal, primitive: "Primitive", scopes: Collection[str] = ()) -> Decision:
        """May `principal` use `primitive`, where that takes more `scopes` than it always does? Raises Overloaded."""

    async def ration(self, principal: Principal, tool: "Primitive") -> float | None:
        """Count one more use of a tool that is guarded; None, or the seconds to wait where its rate is used up."""

    def allows(self, principal: Principal, guarded: "Guarded", *, later: bool = False) -> bool:
        """May `principal` use it as things are, or, `later`, after a step-up? For threads."""

    async def hidden(self, principal: Principal, primitives: "Sequence[Primitive]") -> frozenset[str]:
        """The keys of those of `primitives` that `principal` must not see."""


class SessionStore(Protocol):
    """Sessions of the handshake era."""

    def peek(self, key: str, owner: str) -> "Session | None":
        """The session, if this process knows it; no I/O. A foreign owner's session is no session."""

    async def load(self, key: str, owner: str) -> "Session | None":
        """The session, or None when it is unknown, foreign, ended or expired."""

    async def open(
        self,
        *,
        owner: str,
        revision: Revision,
        client_info: dict[str, Any],
        capabilities: dict[str, Any],
        server: str,
        user_id: Any = None,
    ) -> "Session":
        """A new session. Raises Overloaded above the cap of all sessions."""

    async def save(self, session: "Session") -> None:
        """Write the log level and whether the client has said `initialized`."""

    async def end(self, session: "Session", reason: str) -> None:
        """End it here and in the store, with the calls it has in flight."""

    async def cancel(self, session: "Session", id: jsonrpc.Id) -> None:
        """Cancel the call with this id, in whichever process it runs; unknown and finished ids are nothing to
        cancel.
        """

    def touch(self, session: "Session") -> None:
        """It was used just now. Cheap: the store writes at most once a minute."""


class Replies(Protocol):
    """Questions to clients of the handshake era: their ids, and answers that reach another process than the one that
    asked.
    """

    def new_id(self, session: "Session") -> str:
        """An id for a question, unlike any other's in any process."""

    def is_genuine(self, session: "Session", id: jsonrpc.Id) -> bool:
        """Is this an id that some process may have made for a question to this session, which still waits?"""

    def listening(self, session: "Session") -> AbstractAsyncContextManager[None]:
        """While inside, what others `forward` comes to `session.answer`. Entered before a question is sent."""

    async def forward(self, session: "Session", response: jsonrpc.Response) -> None:
        """Pass an answer on to whoever asked. Once for each id; raises Overloaded when it cannot be done now."""


class InProcess:
    """The Replies of a server in a single process: nobody else could have asked."""

    def new_id(self, session: "Session") -> str:
        return secrets.token_urlsafe(12)

    def is_genuine(self, session: "Session", id: jsonrpc.Id) -> bool:
        return False

    def listening(self, session: "Session") -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def forward(self, session: "Session", response: jsonrpc.Response) -> None:
        return None


class ListMemory(Protocol):
    """What lists sessions were given."""

    def keep(self, session: "Session") -> None:
        """Remember `session.lists`, beside what other processes gave it. Does not wait."""

    async def given(self, session: "Session") -> Mapping[str, str]:
        """The digests of what it was given last, by the kind of list."""


class Forgetful:
    """The ListMemory of a server that remembers nothing."""

    def keep(self, session: "Session") -> None:
        return None

    async def given(self, session: "Session") -> Mapping[str, str]:
        return {}


class Sealer(Protocol):
    """Authenticated encryption of what clients carry for us."""

    def seal(self, payload: dict[str, Any], binding: bytes, *, ttl: float) -> str:
        """A token that only `open` with the same binding reads back, for `ttl` seconds. Raises StateTooLarge."""

    def open(self, token: Any, binding: bytes) -> dict[str, Any]:
        """The payload. Raises InvalidParams, with one text for every reason."""

    def refused(self) -> InvalidParams:
        """What `open` raises, for those who find a reason of their own."""


class Ledger(Protocol):
    """What was done, or used, and must not be again: by the next attempt or in another process."""

    async def claim(self, name: str, *, owner: str, ttl: float) -> bool:
        """Take the right to do what is called `name`, for good. False when somebody has had it; kept `ttl` seconds."""

    async def record(self, name: str, outcome: dict[str, Any]) -> None:
        """Write down what came of it. Is done also when the caller is cancelled meanwhile."""

    def give_up(self, name: str) -> None:
        """Nobody will know what came of it. Written down without waiting for that."""

    async def outcome(self, name: str) -> dict[str, Any] | None:
        """What came of it; None while nothing was written down."""

    async def spend(self, digest: str, *, ttl: float) -> bool:
        """Use something up that is good for `ttl` seconds at most. False when it was used before."""


class Lease(Protocol):
    """What a call may hold of the executor."""

    def close(self) -> None:
        """The call is over; a lane it took goes back when its thread is idle."""


class Executor(Protocol):
    """Where code that blocks runs."""

    async def run(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run a plain function on a lane, in the caller's context variables. Raises Overloaded at once when the queue
        is full.
        """

    def enter(self, *, patient: bool = False) -> Lease:
        """Make thread-sensitive work of the current context (the async ORM) land on one lane, leased at its first
        use. What is `patient` waits in line however long the line is, and must give up by itself.
        """

    def atomic(self, databases: Sequence[str]) -> AbstractAsyncContextManager[None]:
        """A transaction on each of `databases` around what the current call does inside the `async with` block:
        committed when the block ends, rolled back when it raises or is cancelled.
        """

    def rest(self) -> None:
        """Give the current call's lane back while it waits for somebody."""

    def parking(self) -> AbstractContextManager[None]:
        """Around the wait of a plain function in its own thread, whose place another may use meanwhile. Raises
        Overloaded when too many wait so.
        """

    async def attend(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """As `run`; in a plain function that waits (`parking`), its thread has a place again for the time."""

    def asking_is_unsafe(self) -> bool:
        """Is the calling thread inside a transaction, which a question must not hold open?"""


class Attendance(Protocol):
    """What somebody does around one call, in the task and the context variables that the call runs in. It raises
    nothing but the cancellation of that task.
    """

    async def begin(self) -> None:
        """The call is about to run."""

    async def end(self, outcome: "Outcome", problem: "MCPError | Overloaded | None") -> None:
        """The call is over; `begin` came before. `problem` is the error that is the answer."""


class Observer(Protocol):
    """Who is told of calls. What it does with them never fails them."""

    def attend(self, call: "Call") -> Attendance | None:
        """Called for each request in the context of its transport. None, the rule, means that nothing has to be done
        around the call; it must cost next to nothing then.
        """

    def over(self, call: "Call", outcome: "Outcome", problem: "MCPError | Overloaded | None") -> None:
        """Called once for each request when its outcome is known, whether it ran or not, and for each notification."""


class Unobserved:
    """The Observer of a server that nobody observes."""

    def attend(self, call: "Call") -> None:
        return None

    def over(self, call: "Call", outcome: "Outcome", problem: "MCPError | Overloaded | None") -> None:
        return None


class Changes(Protocol):
    """What changed, for those who want to be told, and what sessions want to be told of. Of one server."""

    def enter(self, owner: str) -> None:
        """Count one more open stream of `owner`, a principal's key. Raises Overloaded at a limit."""

    def leave(self, owner: str) -> None:
        """One stream less, which had been counted."""

    async def follow(self, tell: Callable[[str, Any], None]) -> Callable[[], None]:
        """Have `tell` called on the running loop for each change from now on; returns, once that holds, what ends it.

        It is given `"updated"` and `{"uri": ...}`, with an `"owner"` if it concerns one alone, or `"list_changed"` and
        `{"kind": "tools"}` (or prompts, resources); other kinds may be ignored. It must neither block nor raise.
        """

    async def subscribe(self, call: "Call", uri: str) -> None:
        """Tell the session of `call` of changes of a resource, from now on and on whichever worker its stream is. Once
        is enough. Raises InvalidParams above the limit.
        """

    async def unsubscribe(self, call: "Call", uri: str) -> None:
        """Take that back; nothing to take back is no error."""

    def announce(self, call: "Call", uris: Sequence[str], *, opened: bool) -> None:
        """Tell the project that a stream for these resources opened or ended. Does not wait."""


class Interactive(Protocol):
    """The stream of one call: what it says before its answer."""

    async def put(self, message: bytes) -> None:
        """Queue an encoded message; waits while the client reads too slowly."""

    def put_nowait(self, message: bytes) -> None:
        """Queue an encoded message whatever the reader does."""

    def take_back(self, message: bytes) -> None:
        """Queue what says that a question is not asked any more."""


class FrameworkForm(Protocol):
    """A question's form that is a framework's own, which cleans the answer itself. Both may block."""

    schema: dict[str, Any]
    """The restricted JSON Schema that clients show."""
    identity: dict[str, Any]
    """What of it stays the same while it is the same form."""

    def read(self, content: Any, *, taken: bool = False) -> tuple[Any, Any]:
        """The cleaned data, and the form that holds it. `taken` says that the same content was found valid before.
        Raises ArgumentError with a text for the person.
        """


FormTable = Callable[[Any], Callable[[], FrameworkForm] | None]
"""Knows a framework's forms: what compiles one (which may block), None for anything else."""


class Pages(Protocol):
    """Pages of the site that people are sent to (client/elicitation, URL mode)."""

    def address(self, call: "Call", target: Any, id: str, *, ttl: float) -> str:
        """The absolute URL of a gate before `target`, which lets nobody but the user of the call through, for `ttl`
        seconds. May block. Raises Unanswered when there can be none.
        """

    async def returned(self, id: str, *, within: float) -> bool:
        """Has this user come back from the page? Waits for it, `within` seconds at most."""


Lifespan = Callable[[Any], Any]
"""A function of the server that returns an async context manager; what it yields is `ctx.lifespan`."""

ExceptionTable = Callable[[Exception], Exception | None]
"""Translates a framework's exception into an MCPError or a ToolError; None when it is a bug."""

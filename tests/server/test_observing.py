"""The observer of a server records every call once, for every outcome."""

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import pytest

from mcp_django import Context, MCPError, Server, ToolError
from mcp_django.observability import Call, Outcome, current_call
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidRequest
from mcp_django.protocol.revisions import Era
from mcp_django.server.calls import call as call_module
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Acknowledgement, PendingResponse
from mcp_django.server.ports import Overloaded
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_server, ports
from tests.support.clock import Clock
from tests.support.waiting import turns

BATCHING = "2025-03-26"
LIMIT_SECONDS = 5
"""The time that the tool `slow` and the prompt `late` have."""
both = pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
however = pytest.mark.parametrize("attending", [False, True], ids=["alone", "attended"])


class Refused(MCPError):
    code = -32001


class RecordingObserver:
    """An observer that records outcomes, and observes every call when `attending`."""

    def __init__(self, attending: bool = False) -> None:
        self.attending = attending
        self.calls: list[tuple[Call, Outcome, Any]] = []
        self.events: list[str] = []
        self.current: list[Call | None] = []
        self.at_the_beginning: Callable[[], Any] | None = None

    def observe(self, call: Call) -> "Attendance | None":
        return Attendance(self, call) if self.attending else None

    def record_outcome(self, call: Call, outcome: Outcome, problem: Any) -> None:
        self.calls.append((call, outcome, problem))
        self.current.append(current_call())

    @property
    def outcomes(self) -> list[str]:
        return [str(outcome) for _, outcome, _ in self.calls]

    def one(self) -> tuple[Call, Outcome, Any]:
        (record,) = self.calls
        if self.attending:
            call, outcome, _ = record
            assert self.events == [f"begin {call.method}", f"end {call.method}: {outcome}"]
        return record


@dataclasses.dataclass
class Attendance:
    recorder: RecordingObserver
    call: Call

    async def start(self) -> None:
        assert current_call() is self.call
        self.recorder.events.append(f"begin {self.call.method}")
        if self.recorder.at_the_beginning is not None:
            await self.recorder.at_the_beginning()

    async def finish(self, outcome: Outcome, problem: Any) -> None:
        assert current_call() is self.call
        assert (outcome, problem) == self.recorder.calls[-1][1:]
        self.recorder.events.append(f"end {self.call.method}: {outcome}")


@pytest.fixture
def recorder() -> RecordingObserver:
    return RecordingObserver()


def make_observed_server(recorder: RecordingObserver, *, lifespan: Any = None, **given: Any) -> Server:
    """A server whose tools end in every way."""
    server = make_server(lifespan=lifespan, **given)
    server.bind(ports(observer=recorder))

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool(timeout=LIMIT_SECONDS)
    async def slow() -> None:
        await asyncio.Event().wait()

    @server.tool
    async def fail(how: str) -> Any:
        if how == "result":
            return object()
        raise {
            "tool": ToolError("for the model"),
            "bug": RuntimeError("secret"),
            "protocol": Refused("no"),
            "overloaded": Overloaded(),
        }[how]

    @server.tool
    async def ask(ctx: Context) -> str:
        return f"{bool(await ctx.elicit('Sure?', bool))}"

    @server.prompt
    async def broken() -> str:
        raise RuntimeError("secret")

    @server.prompt(timeout=LIMIT_SECONDS)
    async def late() -> str:
        await asyncio.Event().wait()
        return ""

    @server.resource("note://{word}")
    async def note(word: str) -> str:
        return word

    return server


async def run_to_end(peer: PipelineClient, method: str, params: dict[str, Any] | None = None) -> Any:
    """The result, or the error, of a request."""
    try:
        return await peer.request(method, params)
    except (MCPError, Overloaded) as problem:
        return problem


def make_tool_call(name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "tools/call", {"name": name, "arguments": arguments}


EVERYWHERE = [
    (("tools/list", None), "ok"),
    (("resources/list", None), "ok"),
    (("resources/read", {"uri": "note://x"}), "ok"),
    (("resources/read", {"uri": "other://x"}), "error"),
    (make_tool_call("add", a=1, b=2), "ok"),
    (make_tool_call("add", a="one", b=2), "tool_error"),
    (make_tool_call("fail", how="tool"), "tool_error"),
    (make_tool_call("fail", how="bug"), "bug"),
    (make_tool_call("fail", how="result"), "bug"),
    (make_tool_call("fail", how="protocol"), "error"),
    (make_tool_call("fail", how="overloaded"), "overloaded"),
    (make_tool_call("slow"), "timeout"),
    (make_tool_call("unknown"), "error"),
    (("tools/call", {"name": 7}), "error"),
    (("prompts/get", {"name": "broken"}), "bug"),
    (("prompts/get", {"name": "late"}), "timeout"),
    (("prompts/get", {"name": "unknown"}), "error"),
    (("tools/list", {"cursor": "nonsense"}), "error"),
    (("no/such/method", None), "error"),
]


@both
@however
async def test_the_outcome_of_a_call_is_recorded_once(version: str, attending: bool, clock: Clock) -> None:
    violations = []
    for (method, params), outcome in EVERYWHERE:
        recorder = RecordingObserver(attending)
        peer = PipelineClient(make_observed_server(recorder), version=version)
        ending = asyncio.ensure_future(run_to_end(peer, method, params))
        await clock.advance(LIMIT_SECONDS)
        answer = await ending
        call, outcome, problem = recorder.one()
        found = (call.method, outcome, problem, current_call())
        if found != (method, outcome, answer if isinstance(answer, Exception) else None, None):
            violations.append((method, params, outcome, found))
    assert violations == []


@however
async def test_outcomes_of_one_era_only_are_recorded(attending: bool) -> None:
    for version, method in [(HANDSHAKE, "ping"), (HANDSHAKE, "logging/setLevel"), (STATELESS, "server/discover")]:
        recorder = RecordingObserver(attending)
        await run_to_end(PipelineClient(make_observed_server(recorder), version=version), method, {"level": "info"})
        assert recorder.one()[1] == "ok", method


@however
async def test_initialize_is_a_call(attending: bool) -> None:
    recorder = RecordingObserver(attending)
    peer = PipelineClient(make_observed_server(recorder), version=HANDSHAKE)
    peer.session = None
    introduction = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    await peer.request("initialize", introduction)
    assert recorder.one()[:2] == (recorder.calls[0][0], "ok")
    assert recorder.calls[0][0].connection.opened_session is not None


@however
async def test_each_round_of_a_conversation_is_a_call(attending: bool) -> None:
    recorder = RecordingObserver(attending)
    peer = PipelineClient(make_observed_server(recorder), answer=lambda *_: accept(value=True))
    assert await peer.text("ask") == "True"
    assert recorder.outcomes == ["input_required", "ok"]


async def test_a_recorded_bug_has_the_reference_of_its_response(recorder: RecordingObserver) -> None:
    text = await PipelineClient(make_observed_server(recorder)).error("fail", how="bug")
    reference = recorder.one()[0].record.reference
    assert reference
    assert text == f"Internal error (reference {reference})"


async def test_a_bug_of_a_call_made_by_middleware_belongs_to_that_call(recorder: RecordingObserver) -> None:
    async def copy(call: Call, call_next: Any) -> Any:
        return await call_next(dataclasses.replace(call, capabilities={}))

    text = await PipelineClient(make_observed_server(recorder, middleware=[copy])).error("fail", how="bug")
    call, outcome, _ = recorder.one()
    assert outcome == "bug"
    assert str(call.record.reference) in text


async def test_a_bug_of_middleware_is_recorded() -> None:
    async def broken(call: Call, call_next: Any) -> Any:
        raise RuntimeError("secret")

    for method in ("tools/call", "tools/list", "no/such"):
        recorder = RecordingObserver()
        await run_to_end(PipelineClient(make_observed_server(recorder, middleware=[broken])), method, {"name": "add"})
        assert recorder.one()[1] == "bug", method


async def test_an_error_handled_by_middleware_is_not_recorded(recorder: RecordingObserver) -> None:
    async def excuse(call: Call, call_next: Any) -> Any:
        try:
            return await call_next(call)
        except MCPError:
            return {"excuse": True}

    await PipelineClient(make_observed_server(recorder, middleware=[excuse])).request("no/such")
    assert recorder.one()[1] == "ok"


async def test_a_lifespan_that_fails_is_a_bug_of_the_call(recorder: RecordingObserver) -> None:
    def lifespan(server: Server) -> Any:
        raise RuntimeError("secret")

    await run_to_end(PipelineClient(make_observed_server(recorder, lifespan=lifespan)), "tools/list")
    assert recorder.one()[1] == "bug"


@both
@however
async def test_a_cancelled_call_is_recorded_after_its_thread_is_free(version: str, attending: bool) -> None:
    recorder, reached = RecordingObserver(attending), asyncio.Event()
    server = make_observed_server(recorder)

    @server.tool
    async def wait() -> None:
        reached.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(PipelineClient(server, version=version).call("wait"))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert recorder.one()[1:] == ("cancelled", None)


async def test_a_call_cancelled_before_its_start_never_runs() -> None:
    recorder, reached = RecordingObserver(attending=True), asyncio.Event()

    async def dawdle() -> None:
        reached.set()
        await asyncio.Event().wait()

    recorder.at_the_beginning = dawdle
    task = asyncio.ensure_future(PipelineClient(make_observed_server(recorder)).call("add", a=1, b=2))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert recorder.one()[1] == "cancelled"


@however
async def test_a_closed_coroutine_is_recorded_as_cancelled(attending: bool) -> None:
    for problem, outcome in [
        (None, "cancelled"),
        (InvalidRequest("taken"), "error"),
        (Overloaded(status=429), "overloaded"),
    ]:
        recorder = RecordingObserver(attending)
        work = handle_message(
            PipelineClient(make_observed_server(recorder), version=HANDSHAKE),
            {"method": "tools/call", "params": {"name": "add"}},
        )
        work.close(problem)
        assert recorder.outcomes == [outcome]
        assert recorder.calls[0][2] is problem
        assert recorder.events == []


def handle_message(peer: PipelineClient, message: Any) -> Any:
    """Handle a message of the handshake era, or a batch of them, in the pipeline."""
    batch = message if isinstance(message, list) else [message]
    numbered = [{"jsonrpc": "2.0", "id": number, **one} for number, one in enumerate(batch, 1)]
    for one in numbered:
        if str(one["method"]).startswith("notifications/"):
            del one["id"]
    connection = Connection(peer.principal, session=peer.session)
    raw = numbered if isinstance(message, list) else numbered[0]
    return peer.pipeline.handle(peer.pipeline.eras[Era.HANDSHAKE], raw, connection, Outbox())


ADD = {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}}
PING = {"method": "ping"}


@however
async def test_each_element_of_a_batch_is_a_call(attending: bool) -> None:
    recorder = RecordingObserver(attending)
    peer = PipelineClient(make_observed_server(recorder), version=BATCHING)
    unknown = {"method": "no/such"}
    work = handle_message(peer, [PING, ADD, unknown, {"method": "notifications/initialized"}, {"method": 7}, ADD])
    assert isinstance(work, PendingResponse)
    answers = jsonrpc.loads(await work.run)
    assert len(answers) == 5
    outcomes = sorted((call.method, str(outcome)) for call, outcome, _ in recorder.calls)
    assert outcomes == [
        ("no/such", "error"),
        ("notifications/initialized", "ok"),
        ("ping", "ok"),
        ("tools/call", "ok"),
        ("tools/call", "ok"),
    ]


async def test_each_element_of_a_refused_batch_is_a_call(recorder: RecordingObserver) -> None:
    peer = PipelineClient(make_observed_server(recorder), version=BATCHING)
    work = handle_message(peer, [ADD, {"method": "notifications/initialized"}, ADD])
    work.close(Overloaded(status=429))
    assert recorder.outcomes == ["overloaded"] * 2


async def test_a_batch_cancelled_before_its_first_step_is_recorded(recorder: RecordingObserver) -> None:
    peer = PipelineClient(make_observed_server(recorder), version=BATCHING)
    handle_message(peer, [ADD, {"method": "notifications/initialized"}, ADD]).close()
    assert recorder.outcomes == ["cancelled"] * 2


async def test_a_batch_cancelled_at_any_step_is_recorded() -> None:
    for turns_before in range(5):
        recorder = RecordingObserver()
        server = make_observed_server(recorder)

        @server.tool
        async def wait() -> None:
            await asyncio.Event().wait()

        peer = PipelineClient(server, version=BATCHING)
        waiting = {"method": "tools/call", "params": {"name": "wait"}}
        work = handle_message(peer, [waiting, {"method": "notifications/initialized"}, waiting])
        task = asyncio.ensure_future(work.run)
        await turns(1)  # a task that never began closes nothing; its maker does
        await turns(turns_before)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await turns(3)
        outcomes = [outcome for call, outcome, _ in recorder.calls if call.id is not None]
        assert outcomes == ["cancelled"] * 2, turns_before
        assert peer.session is not None
        assert peer.session.in_flight == {}, turns_before


async def test_one_of_a_batch_can_be_cancelled(recorder: RecordingObserver) -> None:
    reached = asyncio.Event()
    server = make_observed_server(recorder)

    @server.tool
    async def wait() -> None:
        reached.set()
        await asyncio.Event().wait()

    peer = PipelineClient(server, version=BATCHING)
    work = handle_message(peer, [ADD, {"method": "tools/call", "params": {"name": "wait"}}])
    task = asyncio.ensure_future(work.run)
    await reached.wait()
    await peer.notify("notifications/cancelled", {"requestId": 2})
    assert len(jsonrpc.loads(await task)) == 1
    outcomes = {(call.id, str(outcome)) for call, outcome, _ in recorder.calls}
    assert outcomes == {(1, "ok"), (2, "cancelled"), (None, "ok")}


async def test_a_message_that_is_not_a_call_is_not_recorded(recorder: RecordingObserver) -> None:
    peer = PipelineClient(make_observed_server(recorder), version=HANDSHAKE)
    peer.session = None
    with pytest.raises(MCPError):
        handle_message(peer, PING | {"method": "tools/list"})
    peer = PipelineClient(make_observed_server(recorder))
    with pytest.raises(MCPError):
        await peer.request("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}})
    assert recorder.calls == []


async def test_a_notification_is_recorded_without_an_id() -> None:
    for problem, expected in [
        (None, "ok"),
        (Refused("no"), "error"),
        (RuntimeError("secret"), "bug"),
        (asyncio.CancelledError("of its own"), "bug"),
        (Overloaded(), "overloaded"),
    ]:

        async def middleware(call: Call, call_next: Any, problem: BaseException | None = problem) -> Any:
            if problem is not None:
                raise problem
            return await call_next(call)

        recorder = RecordingObserver(attending=True)
        await PipelineClient(make_observed_server(recorder, middleware=[middleware])).notify(
            "notifications/of-your-own"
        )
        ((call, outcome, _),) = recorder.calls
        assert (call.id, outcome) == (None, expected), problem
        assert recorder.events == []


async def test_a_notification_of_a_disconnected_client_is_recorded_as_cancelled(recorder: RecordingObserver) -> None:
    async def middleware(call: Call, call_next: Any) -> Any:
        await asyncio.Event().wait()

    server = make_observed_server(recorder, middleware=[middleware])
    task = asyncio.ensure_future(PipelineClient(server).notify("notifications/of-your-own"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [outcome for _, outcome, _ in recorder.calls] == ["cancelled"]


def test_an_ignored_notification_is_not_recorded(recorder: RecordingObserver) -> None:
    peer = PipelineClient(make_observed_server(recorder))
    receipt = peer._handle({"jsonrpc": "2.0", "method": "notifications/x"}, Outbox())
    assert receipt == Acknowledgement()
    assert recorder.calls == []


async def test_the_duration_starts_at_the_message(recorder: RecordingObserver, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[float] = []

    async def note(call: Call, call_next: Any) -> Any:
        ran.append(time.perf_counter())
        return await call_next(call)

    sent = time.perf_counter()
    await PipelineClient(make_observed_server(recorder, middleware=[note])).call("add", a=1, b=2)
    call = recorder.one()[0]
    assert sent <= call.started_at <= ran[0]
    monkeypatch.setattr(call_module, "perf_counter", lambda: call.started_at + 3)
    assert call.duration == pytest.approx(3)

"""The log line of a call and the receivers of its signals, on real threads, however the call ends."""

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import django
import pytest
from django.db import connection
from django.dispatch import Signal

from mcp_django import Context, MCPError, Server, ToolError
from mcp_django.auth.authorization.policy import Policy
from mcp_django.observability import Call, current_call
from mcp_django.runtime.calls import observer as module
from mcp_django.runtime.calls.observer import SignalCallObserver
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.options import ServerOptions
from mcp_django.server.ports import Overloaded
from mcp_django.signals import call_finished, call_started
from tests.runtime.serving import WAIT_SECONDS
from tests.runtime.serving import serve as serve_on_threads
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, ports
from tests.support.clock import Clock
from tests.testapp.models import Book

real_threads = pytest.mark.django_db(transaction=True)


class Refused(MCPError):
    code = -32001


class Site:
    """A server whose handlers end in every way, on threads of its own."""

    def __init__(self, executor: LeasingExecutor) -> None:
        self.executor = executor
        self.reached, self.opened = threading.Event(), threading.Event()
        outside = ports(executor=executor, authorizer=Policy(executor), observer=SignalCallObserver(executor))
        self.server = Server("tests", ports=outside, options=ServerOptions())
        self._declare(self.server)

    def _declare(self, server: Server) -> None:
        @server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        @server.tool
        async def fail(how: str) -> None:
            raise {
                "tool": ToolError("no seats"),
                "bug": RuntimeError("swordfish"),
                "protocol": Refused("no"),
                "overloaded": Overloaded(),
            }[how]

        @server.tool
        async def ask(ctx: Context) -> str:
            return str(await ctx.elicit("Sure?", bool))

        @server.tool
        async def count() -> int:
            return await Book.objects.acount()

        @server.tool(atomic=True)
        def write_and_fail() -> None:
            Book.objects.create(title="rolled back")
            raise RuntimeError("swordfish")

        @server.tool(atomic=True)
        async def awrite_and_fail() -> None:
            await Book.objects.acreate(title="rolled back")
            raise RuntimeError("swordfish")

        @server.tool
        async def wait() -> None:
            self.reached.set()
            await asyncio.Event().wait()

        @server.tool
        def wait_in_a_thread() -> None:
            self.reached.set()
            self.opened.wait(WAIT_SECONDS)

        @server.tool(timeout=5)
        async def slow() -> None:
            await asyncio.Event().wait()

        @server.tool(timeout=5)
        def slow_in_a_thread() -> None:
            self.opened.wait(WAIT_SECONDS)

    def call(self, name: str, version: str = STATELESS, **arguments: Any) -> "asyncio.Task[Any]":
        """Start the call as the runtime does: as a task in a clean context."""
        call = PipelineClient(self.server, version=version).call(name, **arguments)
        return asyncio.Task(call, loop=asyncio.get_running_loop(), context=contextvars.Context())

    async def until_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, WAIT_SECONDS)


def serve(main: Callable[[Site], Awaitable[None]], *, threads: int = 2, queue: int = 4) -> None:
    """Run `main` on a loop of its own, as a server does: a test that is a coroutine has no threads."""

    async def with_site(executor: LeasingExecutor) -> None:
        site = Site(executor)
        try:
            await main(site)
        finally:
            site.opened.set()

    serve_on_threads(with_site, threads=threads, queue=queue)


@contextlib.contextmanager
def connected(signal: Signal, receiver: Callable[..., Any]) -> Iterator[None]:
    """Connect `receiver` in the block."""
    signal.connect(receiver)
    try:
        yield
    finally:
        signal.disconnect(receiver)


def write_row(call: Call, outcome: str, **kwargs: Any) -> None:
    """Write a row as a plain receiver."""
    Book.objects.create(title=f"{call.params['name']} {outcome}")


async def awrite_row(call: Call, outcome: str, **kwargs: Any) -> None:
    """Write a row as an async receiver."""
    await Book.objects.acreate(title=f"{call.params['name']} {outcome}")


async def rows() -> list[str]:
    return await asyncio.to_thread(_titles)


async def take_rows() -> list[str]:
    """Read the rows, and delete them."""
    found = await rows()
    await asyncio.to_thread(_delete)
    return found


def _delete() -> None:
    try:
        Book.objects.all().delete()
    finally:
        connection.close()


def _titles() -> list[str]:
    try:
        return list(Book.objects.order_by("pk").values_list("title", flat=True))
    finally:
        connection.close()


receivers = pytest.mark.parametrize("receiver", [write_row, awrite_row], ids=["plain", "async"])


@real_threads
@receivers
def test_a_receiver_can_write_a_row_before_the_answer(subtests: pytest.Subtests, receiver: Any, clock: Clock) -> None:
    async def main(site: Site) -> None:
        for version in (HANDSHAKE, STATELESS):
            for name, arguments, outcome in [
                ("add", {"a": 1, "b": 2}, "ok"),
                ("count", {}, "ok"),
                ("fail", {"how": "tool"}, "tool_error"),
                ("fail", {"how": "bug"}, "bug"),
                ("fail", {"how": "protocol"}, "error"),
                ("fail", {"how": "overloaded"}, "overloaded"),
                ("slow", {}, "timeout"),
                ("slow_in_a_thread", {}, "timeout"),
                # A row of a receiver outlives the transaction of the call.
                ("write_and_fail", {}, "bug"),
                ("awrite_and_fail", {}, "bug"),
            ]:
                with subtests.test(version=version, name=name, arguments=arguments):
                    calling = site.call(name, version, **arguments)
                    if outcome == "timeout":
                        await clock.advance(5)
                    with contextlib.suppress(MCPError, Overloaded):
                        await calling
                    assert await take_rows() == [f"{name} {outcome}"]

    with connected(call_finished, receiver):
        serve(main, threads=4)


@real_threads
@receivers
@pytest.mark.parametrize("name", ["wait", "wait_in_a_thread"])
def test_a_receiver_can_write_a_row_for_a_call_that_was_cancelled(receiver: Any, name: str) -> None:
    async def main(site: Site) -> None:
        for version in (HANDSHAKE, STATELESS):
            site.reached.clear()
            task = site.call(name, version)
            await site.until_reached()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # The row exists while a plain handler still occupies its thread.
            assert await take_rows() == [f"{name} cancelled"]

    with connected(call_finished, receiver):
        serve(main, threads=4)


@real_threads
@receivers
def test_one_thread_is_enough_for_a_call_and_its_receivers(receiver: Any) -> None:
    async def main(site: Site) -> None:
        await site.call("count")
        assert await rows() == ["count ok"]

    with connected(call_started, lambda **_: Book.objects.count()), connected(call_finished, receiver):
        serve(main, threads=1)


@real_threads
def test_plain_receivers_do_not_run_on_the_loop() -> None:
    threads: list[threading.Thread] = []

    def note(**kwargs: Any) -> None:
        threads.append(threading.current_thread())

    async def main(site: Site) -> None:
        await site.call("add", a=1, b=2)
        assert len(threads) == 2
        assert threading.current_thread() not in threads

    with connected(call_started, note), connected(call_finished, note):
        serve(main)


def test_receivers_get_the_call_and_its_outcome() -> None:
    told: list[tuple[str, dict[str, Any]]] = []

    async def started(**given: Any) -> None:
        told.append(("started", given))
        assert current_call() is given["call"]

    async def finished(**given: Any) -> None:
        told.append(("finished", given))
        assert current_call() is given["call"]

    async def main(site: Site) -> None:
        text = await PipelineClient(site.server).error("fail", how="bug")
        (_, first), (_, last) = told
        assert [which for which, _ in told] == ["started", "finished"]
        assert first.keys() == {"signal", "sender", "call"}
        assert first["call"] is last["call"]
        assert first["call"].method == "tools/call"
        assert first["sender"] is last["sender"] is site.server
        assert (last["outcome"], last["error"]) == ("bug", None)
        assert last["reference"] in text
        assert last["duration"] > 0
        told.clear()
        with pytest.raises(Refused) as caught:
            await site.call("fail", how="protocol")
        assert told[1][1]["error"] is caught.value
        assert told[1][1]["reference"] is None

    with connected(call_started, started), connected(call_finished, finished):
        serve(main)


def test_receivers_are_called_for_calls_that_answer_at_once() -> None:
    told: list[str] = []

    async def note(call: Call, **given: Any) -> None:
        told.append(f"{call.method} {given.get('outcome', 'started')}")

    async def main(site: Site) -> None:
        await PipelineClient(site.server, version=HANDSHAKE).request("ping")
        await PipelineClient(site.server).request("tools/list")

    with connected(call_started, note), connected(call_finished, note):
        serve(main)
    assert told == ["ping started", "ping ok", "tools/list started", "tools/list ok"]


def test_a_failing_receiver_affects_nothing_else(subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    problems: list[BaseException] = []

    def fail(**kwargs: Any) -> None:
        raise problems[-1]

    async def afail(**kwargs: Any) -> None:
        raise problems[-1]

    async def note(**kwargs: Any) -> None:
        told.append(kwargs)

    async def main(site: Site) -> None:
        assert await PipelineClient(site.server).text("add", a=1, b=2) == "3"

    for signal in [call_started, call_finished]:
        for problem, plain in [
            (RuntimeError("swordfish"), True),
            (RuntimeError("swordfish"), False),
            (asyncio.CancelledError(), True),
            (asyncio.CancelledError(), False),
            (SystemExit(1), True),
        ]:
            with subtests.test(signal=signal, problem=problem, plain=plain):
                problems.append(problem)
                told.clear()
                caplog.clear()
                with connected(signal, fail if plain else afail), connected(signal, note):
                    serve(main)
                if isinstance(problem, Exception) or django.VERSION < (6, 1):
                    # After the cancellation of a plain receiver newer versions skip other async receivers. They swallow
                    # that of an async one.
                    assert told
                    assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR"]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
@pytest.mark.parametrize("signal", [call_started, call_finished], ids=["started", "finished"])
def test_a_call_waits_for_its_receivers_in_bounded_time(
    signal: Signal, plain: bool, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    opened, given_up = threading.Event(), asyncio.Event()

    def hang(**kwargs: Any) -> None:
        opened.wait(WAIT_SECONDS)

    async def ahang(**kwargs: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    async def main(site: Site) -> None:
        try:
            calling = asyncio.ensure_future(PipelineClient(site.server).text("add", a=1, b=2))
            await clock.advance_until(calling.done)
            assert await calling == "3"
            if not plain:
                await given_up.wait()
        finally:
            opened.set()

    with connected(signal, hang if plain else ahang):
        serve(main)
    assert f"timed out after {module.RECEIVER_TIMEOUT_SECONDS:g} s" in caplog.text


def test_receivers_finish_although_the_call_does_not_wait_for_them() -> None:
    gate, reached, told = asyncio.Event(), asyncio.Event(), list[str]()

    async def slowly(outcome: str, **kwargs: Any) -> None:
        reached.set()
        await gate.wait()
        told.append(outcome)

    async def main(site: Site) -> None:
        task = site.call("wait")
        await site.until_reached()
        task.cancel()
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told == []
        gate.set()
        await asyncio.gather(*module._running_tasks)
        assert told == ["cancelled"]

    with connected(call_finished, slowly):
        serve(main)


def test_a_call_cancelled_during_its_start_signal_finishes_after_it() -> None:
    gate, reached, told = asyncio.Event(), asyncio.Event(), list[str]()

    async def started(**kwargs: Any) -> None:
        reached.set()
        await gate.wait()
        told.append("started")

    async def finished(outcome: str, **kwargs: Any) -> None:
        told.append(outcome)

    async def main(site: Site) -> None:
        task = site.call("add", a=1, b=2)
        await reached.wait()
        task.cancel()
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told == ["started", "cancelled"]

    with connected(call_started, started), connected(call_finished, finished):
        serve(main)


@real_threads
@receivers
def test_a_finished_call_is_signalled_though_many_wait_for_a_thread(receiver: Any) -> None:
    async def main(site: Site) -> None:
        stuck = site.call("wait_in_a_thread")
        await site.until_reached()
        with connected(call_finished, receiver):
            done = site.call("add", a=1, b=2)
            [(_, pool)] = site.executor._pools.items()
            while not (pool.waiting or done.done()):
                await asyncio.sleep(0)
            site.opened.set()
            assert (await done)["isError"] is False
            assert "add ok" in await rows()
            await stuck

    serve(main, threads=1, queue=0)


@real_threads
def test_a_refusal_does_not_wait_for_receivers_that_find_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    async def main(site: Site) -> None:
        stuck = site.call("wait_in_a_thread")
        await site.until_reached()
        with connected(call_finished, write_row):
            with pytest.raises(Overloaded):
                await site.call("wait_in_a_thread")
            assert await rows() == []
        site.opened.set()
        await stuck

    serve(main, threads=1, queue=0)
    assert "Signal call_finished was not sent for a call, because all threads are in use" in caplog.text
    assert "Traceback" not in caplog.text


def test_without_receivers_calls_are_not_observed() -> None:
    assert not call_started.receivers
    assert not call_finished.receivers

    async def main(site: Site) -> None:
        assert SignalCallObserver(site.executor).observe(None) is None  # type: ignore[arg-type]  # not even looked at

    serve(main)


class Lines(logging.Handler):
    """Collects the lines of `mcp_django.calls`."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def one(self) -> tuple[logging.LogRecord, str]:
        (record,) = self.records
        return record, record.getMessage()


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, logger = Lines(), logging.getLogger("mcp_django.calls")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_a_call_is_one_line(subtests: pytest.Subtests, lines: Lines, clock: Clock) -> None:
    async def main(site: Site) -> None:
        for version in (HANDSHAKE, STATELESS):
            for name, arguments, outcome, level in [
                ("add", {"a": 1, "b": 2}, "ok", "INFO"),
                ("add", {"a": "x", "b": 2}, "tool_error", "INFO"),
                ("fail", {"how": "tool"}, "tool_error", "INFO"),
                ("fail", {"how": "protocol"}, "error", "INFO"),
                ("unknown", {}, "error", "INFO"),
                ("slow", {}, "timeout", "WARNING"),
                ("fail", {"how": "overloaded"}, "overloaded", "WARNING"),
                ("fail", {"how": "bug"}, "bug", "ERROR"),
            ]:
                with subtests.test(version=version, name=name, arguments=arguments):
                    lines.records.clear()
                    calling = site.call(name, version, **arguments)
                    if outcome == "timeout":
                        await clock.advance(5)
                    with contextlib.suppress(MCPError, Overloaded):
                        await calling
                    record, line = lines.one()
                    assert record.levelname == level
                    assert record.name == "mcp_django.calls"
                    assert line.startswith(f"tools/call {name}: {outcome} in ")
                    assert "server=default principal=local call_id=1" in line
                    assert f"revision={version}" in line
                    assert ("session=" in line) is (version == HANDSHAKE)
                    assert record.exc_info is None  # the traceback is in the line of mcp_django.server
                    assert "swordfish" not in line

    serve(main)


def test_a_cancelled_call_is_one_line(lines: Lines) -> None:
    async def main(site: Site) -> None:
        task = site.call("wait")
        await site.until_reached()
        task.cancel()
        await asyncio.wait([task])

    serve(main)
    record, line = lines.one()
    assert (record.levelname, line.split(" in ")[0]) == ("INFO", "tools/call wait: cancelled")


def test_a_round_with_input_requests_is_one_line(lines: Lines) -> None:
    async def main(site: Site) -> None:
        await site.call("ask")

    serve(main)
    assert lines.one()[1].startswith("tools/call ask: input_required in ")


def test_the_line_has_fields_for_machines(lines: Lines) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"

    async def main(site: Site) -> None:
        params = {"name": "fail", "arguments": {"how": "protocol"}, "_meta": {"traceparent": trace}}
        with pytest.raises(Refused):
            await PipelineClient(site.server, version=HANDSHAKE).request("tools/call", params)

    serve(main)
    record, line = lines.one()
    fields = {name: value for name, value in vars(record).items() if name.startswith("mcp_")}
    duration = fields.pop("mcp_duration_ms")
    assert type(duration) is float
    assert duration > 0
    assert fields == {
        "mcp_server": "default",
        "mcp_method": "tools/call",
        "mcp_name": "fail",
        "mcp_principal": "local",
        "mcp_call_id": "1",
        "mcp_trace_id": "a" * 32,
        "mcp_session": fields["mcp_session"],
        "mcp_revision": HANDSHAKE,
        "mcp_outcome": "error",
        "mcp_error_code": -32001,
    }
    assert len(fields["mcp_session"]) == 8
    assert f"trace_id={'a' * 32}" in line
    assert "error_code=-32001" in line


def test_the_line_of_a_bug_has_its_reference(lines: Lines, caplog: pytest.LogCaptureFixture) -> None:
    found: list[str] = []

    async def main(site: Site) -> None:
        found.append(await PipelineClient(site.server).error("fail", how="bug"))

    serve(main)
    record, line = lines.one()
    reference = vars(record)["mcp_reference"]
    assert f"reference={reference}" in line
    assert reference in found[0]
    assert f"Reference {reference}" in caplog.text


def test_client_text_cannot_forge_a_log_line(subtests: pytest.Subtests, lines: Lines) -> None:
    for name in [
        "add: ok in 1.0 ms, server=default\n2026-01-01 ERROR forged",
        "x\r\x1b[2J\x00",
        'say "when" = now',
        "100%s %(x)d",
        "x" * 100_000,
    ]:
        with subtests.test(name=name):

            async def main(site: Site, name: str = name) -> None:
                peer = PipelineClient(site.server, version=HANDSHAKE)
                for method, params in (("tools/call", {"name": name}), (name, {"name": name})):
                    with pytest.raises(MCPError):
                        await peer.request(method, params)

            lines.records.clear()
            serve(main)
            assert len(lines.records) == 2
            for record in lines.records:
                line = record.getMessage()
                assert line.isprintable()
                assert len(line) < 700
                assert line.count(": error in ") == 1
                line.encode()


def test_neither_arguments_nor_results_are_in_a_line(lines: Lines) -> None:
    async def main(site: Site) -> None:
        @site.server.tool
        async def echo(word: str) -> str:
            return word

        await site.call("echo", word="swordfish")

    serve(main)
    record, line = lines.one()
    assert "swordfish" not in line
    assert "swordfish" not in str(vars(record))


def test_a_notification_has_a_line_for_debugging_only(lines: Lines) -> None:
    async def main(site: Site) -> None:
        await PipelineClient(site.server, version=HANDSHAKE).notify("notifications/initialized")

    serve(main)
    assert lines.records == []
    logging.getLogger("mcp_django.calls").setLevel(logging.DEBUG)
    serve(main)
    record, line = lines.one()
    assert record.levelname == "DEBUG"
    assert line.startswith("notifications/initialized: ok in ")


def test_bugs_and_limits_are_logged_though_info_is_off(lines: Lines) -> None:
    logging.getLogger("mcp_django.calls").setLevel(logging.WARNING)

    async def main(site: Site) -> None:
        await site.call("add", a=1, b=2)
        await site.call("fail", how="tool")
        await site.call("fail", how="bug")

    serve(main)
    assert lines.one()[0].levelname == "ERROR"

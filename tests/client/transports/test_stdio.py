"""Processes that serve at their standard input and output."""

import asyncio
import logging
import os
import signal
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError
from mcp.client import Client
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, JSONRPCNotification, JSONRPCRequest

from mcp_django.client.errors import ClientConnectionError
from mcp_django.client.transports import stdio
from mcp_django.client.transports.process_output import (
    MAX_LOGGED_LINES,
    OUTPUT_BUFFER_BYTES,
    LineTooLong,
    ServerEnded,
    StderrTail,
    read_line,
)
from mcp_django.client.transports.targets import Stdio
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS, eventually, turns

PYTHON = Path(sys.executable).name
ECHO = "for line in sys.stdin: say(line.strip())"
"""Writes back each line."""


def script(code: str, *args: str, **options: Any) -> Stdio:
    """Build a Python script. `say` writes a line; `tell` writes a notification with a text in it."""
    head = """
        import json, os, signal, sys
        def say(line): sys.stdout.write(line + chr(10)); sys.stdout.flush()
        def tell(text): say(json.dumps({"jsonrpc": "2.0", "method": "told", "params": {"text": str(text)}}))
    """
    source = textwrap.dedent(head) + textwrap.dedent(code)
    return Stdio(sys.executable, ["-I", "-S", "-c", source, *args], **{"stop_timeout": WAIT_SECONDS, **options})


def request(number: int = 1, **params: Any) -> SessionMessage:
    return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=number, method="echo", params=params))


async def read_notification(reader: Any) -> str:
    """Return the text of the next message, which is a notification."""
    item = await reader.receive()
    assert isinstance(item, SessionMessage), item
    assert isinstance(item.message, JSONRPCNotification)
    return str((item.message.params or {})["text"])


async def end(reader: Any) -> ServerEnded:
    """Return why the connection ended; no message may come before."""
    item = await reader.receive()
    with pytest.raises(anyio.EndOfStream):
        await reader.receive()
    assert isinstance(item, ServerEnded), item
    return item


class Use:
    """The use of a process by a task of its own, which ends when `leave` is set."""

    def __init__(self, target: Stdio) -> None:
        self.texts: asyncio.Queue[str] = asyncio.Queue()
        self.leave = asyncio.Event()
        self.task = asyncio.create_task(self._run(target))

    async def _run(self, target: Stdio) -> None:
        async with target.open() as (reader, _):
            self.texts.put_nowait(await read_notification(reader))
            await self.leave.wait()


async def finish(clock: Clock, task: "asyncio.Task[Any]", step: float = stdio.GROUP_CHECK_INTERVAL_SECONDS) -> None:
    """Let time pass until a task is done."""
    while not task.done():
        await clock.advance(step)


def is_alive(pid: int) -> bool:
    """Return True if a process runs; one without a waiting parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or before it was read
        return False


async def test_messages_of_any_content_go_both_ways() -> None:
    async with script(ECHO).open() as (reader, writer):
        for text in ("plain", "two\nlines\r\n", "\u2028 é 漢 🦉", "x" * 300_000):
            await writer.send(request(text=text))
            item = await reader.receive()
            assert item.message == request(text=text).message


async def test_invalid_messages_are_skipped_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    rubbish = r"""
        say("Server is starting...")
        sys.stdout.buffer.write(b"\xff\xfe\x00\n{\"jsonrpc\":\"2.0\"\n[]\n42\n\n\n{}\n"); sys.stdout.flush()
        tell("still here")
        sys.stdin.read()
    """
    async with script(rubbish).open() as (reader, _):
        assert await read_notification(reader) == "still here"
    (complaint,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "invalid lines" in complaint.getMessage()
    assert "starting" not in caplog.text


async def test_a_last_message_without_a_line_break_is_received() -> None:
    last = 'sys.stdout.write(json.dumps({"jsonrpc": "2.0", "method": "told", "params": {"text": "bye"}}))'
    async with script(last).open() as (reader, _):
        assert await read_notification(reader) == "bye"
        assert (await end(reader)).exit_code == 0


async def test_the_process_has_its_directory_and_a_clean_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SECRET_KEY", "do-not-tell")
    code = """
        tell(os.getcwd()); tell(os.environ.get("SECRET_KEY")); tell(os.environ["GIVEN"]); tell("PATH" in os.environ)
    """
    async with script(code, cwd=tmp_path, env={"GIVEN": "this"}).open() as (reader, _):
        assert [await read_notification(reader) for _ in range(4)] == [str(tmp_path.resolve()), "None", "this", "True"]


async def test_the_process_leads_a_group_and_a_session_of_its_own() -> None:
    async with script("tell(os.getpid() == os.getpgid(0) == os.getsid(0))").open() as (reader, _):
        assert await read_notification(reader) == "True"


async def test_a_command_that_cannot_be_started_is_named(subtests: pytest.Subtests) -> None:
    for target, said in [
        (Stdio("no-such-command-here"), "no-such-command-here was not started: no such command"),
        (Stdio(sys.executable, cwd="/no/such/place"), "its cwd does not exist"),
        (Stdio("/etc"), "etc was not started: Permission denied"),
    ]:
        with subtests.test(target=target, said=said):
            with pytest.raises(ServerEnded, match=said) as failed:
                async with target.open():
                    pass
            assert failed.value.exit_code is None


async def test_a_process_that_ends_at_once_is_reported_with_its_last_output() -> None:
    """The text is a note, which tracebacks show: the text of the error may be sent on."""
    target = script('sys.stderr.write("no token in \\x1b[31mAPI_TOKEN\\n"); sys.exit(3)')
    with pytest.raises(ServerEnded) as failed:
        async with Client(target.open()):
            pass
    assert str(failed.value) == f"{PYTHON} ended with exit code 3"
    assert failed.value.exit_code == 3
    assert failed.value.stderr == r"no token in \x1b[31mAPI_TOKEN"
    assert "API_TOKEN" in failed.value.__notes__[0]


async def test_a_killed_process_is_reported_with_its_signal() -> None:
    async with script("tell(os.getpid()); sys.stdin.read()").open() as (reader, writer):
        os.kill(int(await read_notification(reader)), signal.SIGKILL)
        ended = await end(reader)
        assert (str(ended), ended.exit_code) == (f"{PYTHON} ended with signal SIGKILL", -9)
        with pytest.raises(anyio.BrokenResourceError):
            await writer.send(request())


async def test_a_process_has_ended_although_its_children_keep_the_pipes(clock: Clock) -> None:
    code = """
        if os.fork() == 0: signal.pause()
        tell("started"); os._exit(4)
    """

    async def use() -> int | None:
        async with script(code).open() as (reader, _):
            await read_notification(reader)
            return (await end(reader)).exit_code

    using = asyncio.create_task(use())
    await finish(clock, using)
    assert await using == 4


async def test_a_process_that_closes_its_output_ends_the_connection(clock: Clock) -> None:
    async with script("os.close(1); sys.stdin.read()").open() as (reader, _):
        ending = asyncio.create_task(end(reader))
        await finish(clock, ending, stdio.DRAIN_TIMEOUT_SECONDS)
        assert "closed its standard output" in str(await ending)


async def test_a_process_that_closes_its_input_is_an_error_of_the_next_message(clock: Clock) -> None:
    closed = asyncio.Event()

    async def use() -> None:
        async with script("os.close(0); tell(1); signal.pause()").open() as (reader, writer):
            await read_notification(reader)
            with suppress(anyio.BrokenResourceError):
                while True:
                    await writer.send(request())
                    await asyncio.sleep(0)
            closed.set()
            raise MCPError(CONNECTION_CLOSED, "Connection closed")

    using = asyncio.create_task(use())
    await closed.wait()
    await clock.advance(stdio.DRAIN_TIMEOUT_SECONDS + WAIT_SECONDS)
    with pytest.raises(ServerEnded, match="closed its standard input"):
        await using


async def test_a_line_longer_than_a_message_may_be_ends_the_connection() -> None:
    code = 'tell("x" * 900); sys.stdout.write("y" * 5000); sys.stdout.flush(); sys.stdin.read()'
    async with script(code, max_message_size=1000).open() as (reader, _):
        await read_notification(reader)
        assert "a message of more than 1000 bytes" in str(await end(reader))


async def test_standard_error_is_kept_and_logged_within_bounds(caplog: pytest.LogCaptureFixture) -> None:
    code = """
        for number in range(20_000): sys.stderr.write(f"line {number}\\n")
        sys.stderr.write("z" * 500_000 + "\\nthe end"); sys.stderr.flush()
        sys.exit(1)
    """
    caplog.set_level(logging.INFO, "mcp_django.client.stderr")
    async with script(code, stderr_tail=2000).open() as (reader, _):
        ended = await end(reader)
    assert len(ended.stderr) <= 2000
    assert ended.stderr.endswith("zzz\nthe end")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == f"{PYTHON}: line 0"
    assert len(lines) == MAX_LOGGED_LINES + 1
    assert lines[-1].endswith(f"{20_002 - MAX_LOGGED_LINES} more lines")


async def test_a_process_that_exits_when_its_input_closes_is_not_signalled(tmp_path: Path) -> None:
    code = """
        signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
        tell("up"); sys.stdin.read()
        open(sys.argv[1], "w").write("left by itself")
    """
    async with script(code, str(tmp_path / "note")).open() as (reader, _):
        await read_notification(reader)
    assert (tmp_path / "note").read_text() == "left by itself"


async def test_the_last_message_arrives_before_the_input_closes(tmp_path: Path) -> None:
    code = 'open(sys.argv[1], "w").write(str(len(sys.stdin.read())))'
    async with script(code, str(tmp_path / "note")).open() as (_, writer):
        await writer.send(request(text="x" * 20_000))
    assert int((tmp_path / "note").read_text()) > 20_000


@pytest.mark.parametrize("deaf_to", [[], ["SIGTERM"]], ids=["input", "signals"])
async def test_a_process_that_keeps_running_is_terminated_and_then_killed(
    deaf_to: list[str], tmp_path: Path, clock: Clock
) -> None:
    code = """
        def leave(*_): open(sys.argv[1], "w").write("told"); os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN if "SIGTERM" in sys.argv else leave)
        tell(os.getpid())
        while True: signal.pause()
    """
    use = Use(script(code, str(tmp_path / "note"), *deaf_to))
    pid = int(await use.texts.get())
    use.leave.set()
    await clock.advance(WAIT_SECONDS)
    if deaf_to:
        await clock.advance(WAIT_SECONDS)
    await use.task
    assert not Path(f"/proc/{pid}").exists(), "the process is a zombie"
    assert (tmp_path / "note").exists() is not bool(deaf_to)


async def test_children_of_the_process_end_with_it(clock: Clock, subtests: pytest.Subtests) -> None:
    code = """
        if (child := os.fork()) == 0:
            if "deaf" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
            tell(f"{os.getppid()} {os.getpid()}")
            while True: signal.pause()
        sys.stdin.read() if "leaves" in sys.argv else signal.pause()
    """
    for leader in ["leaves", "stays"]:
        for child in ["listens", "deaf"]:
            with subtests.test(leader=leader, child=child):
                use = Use(script(code, leader, child))
                first, second = map(int, (await use.texts.get()).split())
                assert is_alive(second)
                use.leave.set()
                if leader == "stays":
                    await clock.advance(WAIT_SECONDS)
                await eventually(lambda pid=first: not is_alive(pid), "the process is still there")
                if child == "listens":
                    await eventually(lambda pid=second: not is_alive(pid), "what it started is still there")
                await finish(clock, use.task, WAIT_SECONDS)
                await eventually(lambda pid=second: not is_alive(pid), "what it started is still there")


@pytest.mark.parametrize("times", [1, 2])
async def test_a_cancelled_caller_leaves_no_process(times: int, clock: Clock) -> None:
    use = Use(script("signal.signal(signal.SIGTERM, signal.SIG_IGN); tell(os.getpid())\nwhile True: signal.pause()"))
    pid = int(await use.texts.get())
    use.task.cancel()
    if times == 2:
        await turns(2)
        use.task.cancel()
    for _ in range(2):
        await clock.advance(WAIT_SECONDS)
    with pytest.raises(asyncio.CancelledError):
        await use.task
    assert not Path(f"/proc/{pid}").exists()


def test_a_loop_that_ends_during_the_termination_leaves_no_process() -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); tell(os.getpid())\nwhile True: signal.pause()"

    async def main() -> int:
        pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def use() -> None:
            async with script(deaf, stop_timeout=600).open() as (reader, _):
                pid.set_result(int(await read_notification(reader)))

        using = asyncio.create_task(use())
        await pid
        while asyncio.all_tasks() == {using, asyncio.current_task()}:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # now it waits for the process
        return pid.result()

    assert not Path(f"/proc/{asyncio.run(main())}").exists()


async def test_a_scope_that_runs_out_of_time_leaves_no_process() -> None:
    with anyio.move_on_after(WAIT_SECONDS) as scope:
        async with script("tell(os.getpid()); sys.stdin.read()").open() as (reader, _):
            pid = int(await read_notification(reader))
            scope.cancel()
            await reader.receive()
    assert scope.cancelled_caught
    assert not Path(f"/proc/{pid}").exists()


async def test_a_process_that_does_not_read_blocks_senders_and_not_the_loop(clock: Clock) -> None:
    sent = 0

    async def flood() -> None:
        nonlocal sent
        async with script("tell(1)\nwhile True: signal.pause()").open() as (reader, writer):
            await read_notification(reader)
            while True:
                await writer.send(request(text="x" * 65536))
                sent += 1
                await asyncio.sleep(0)

    flooding = asyncio.create_task(flood())
    await eventually(lambda: sent)
    await turns(2000)
    assert sent < 100
    flooding.cancel()
    await clock.advance(WAIT_SECONDS)
    await asyncio.wait({flooding})


async def test_a_process_whose_output_is_not_read_has_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paused = asyncio.Event()
    feed = asyncio.StreamReader.feed_data

    def note(output: asyncio.StreamReader, data: bytes) -> None:
        feed(output, data)
        if output._paused:  # type: ignore[attr-defined]
            paused.set()

    monkeypatch.setattr(asyncio.StreamReader, "feed_data", note)
    code = """
        for number in range(40):
            tell("x" * 100_000)
            open(sys.argv[1] + ".new", "w").write(str(number))
            os.replace(sys.argv[1] + ".new", sys.argv[1])  # never seen empty
    """
    target = script(code, str(tmp_path / "count"))
    async with target.open() as (reader, _):
        await read_notification(reader)
        await paused.wait()  # from here on, no more fits than the pipe holds
        assert int((tmp_path / "count").read_text()) < 20
        for _ in range(39):
            await read_notification(reader)
        assert (await end(reader)).exit_code == 0


def test_processes_run_on_the_loop_of_any_thread() -> None:
    async def use() -> str:
        async with script("tell('hello'); sys.stdin.read()").open() as (reader, _):
            return await read_notification(reader)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asyncio.run, use()).result(WAIT_SECONDS) == "hello"


async def test_lines_are_read_without_blank_ones_to_the_end() -> None:
    output = asyncio.StreamReader(OUTPUT_BUFFER_BYTES)
    output.feed_data(b"x" * 1_000_000 + b"\n" + b"\r\n  \nrest")
    output.feed_eof()
    assert [await read_line(output, 1 << 20) for _ in range(3)] == [b"x" * 1_000_000, b"rest", None]


async def test_a_line_that_is_too_long_is_not_kept() -> None:
    output = asyncio.StreamReader(OUTPUT_BUFFER_BYTES)
    output.feed_data(b"fits\n" + b"0123456789\n" + b"x" * 11 + b"\nfits\n")
    assert [await read_line(output, 10) for _ in range(2)] == [b"fits", b"0123456789"]
    with pytest.raises(LineTooLong):
        await read_line(output, 10)


def test_lines_are_logged_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcp_django.client.stderr")
    now = 0.0
    tail = StderrTail("it", 100, lambda: now)
    tail.feed(b"noise\n" * (MAX_LOGGED_LINES + 5))
    now = 60.0
    tail.feed(b"calm\n")
    assert [record.getMessage() for record in caplog.records[MAX_LOGGED_LINES:]] == ["it: 5 more lines", "it: calm"]


def test_errors_of_the_transport_are_errors_of_the_connection() -> None:
    assert issubclass(ServerEnded, ClientConnectionError)


async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[stdio.ServerProcess] = []

    class Noted(stdio.ServerProcess):
        def __init__(self, target: Stdio) -> None:
            super().__init__(target)
            children.append(self)

    monkeypatch.setattr(stdio, "ServerProcess", Noted)
    entered = asyncio.Event()

    async def enter() -> None:
        async with Stdio("cat").open():
            entered.set()

    steps = 0
    while not entered.is_set():
        task = asyncio.create_task(enter())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        steps += 1
    assert len(children) > 3
    for child in children:
        pipes = [child.transport.get_pipe_transport(fd) for fd in (0, 1, 2)]
        assert [pipe is not None and pipe.is_closing() for pipe in pipes] == [True] * 3
        assert child.transport.get_returncode() == 0  # it could leave by itself

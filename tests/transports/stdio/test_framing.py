"""Lines on descriptors, with every split, content and kind of descriptor."""

import asyncio
import itertools
import os
import threading
import tty
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.protocol import jsonrpc
from mcp_django.transports.connection.outbound import split_after_progress
from mcp_django.transports.stdio.framing import LineReader, LineSplitter, LineWriter
from tests.support.waiting import WAIT_SECONDS

MOST = 8


@pytest.fixture
def pipe() -> tuple[int, int]:
    """Return the ends of a pipe. The reader and the writer close theirs once: the number is soon that of
    something else.
    """
    return os.pipe()


def cut(*chunks: bytes, most: int = MOST) -> list[bytes]:
    lines = LineSplitter(most)
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    return found + lines.finish()


def test_lines_are_read_as_they_were_sent(subtests: pytest.Subtests) -> None:
    for sent, found in [
        (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\r\n', [b'{"a":1}']),
        (b"\n\r\n  \n{}\n\n", [b"{}"]),
        (b"{}\n[]", [b"{}", b"[]"]),
        (b"\xef\xbb\xbf{}\n", [b"{}"]),
        (b"{}\n\xef\xbb\xbf{}\n", [b"{}", b"\xef\xbb\xbf{}"]),
        (b"\xff\xfe\n", [b"\xff\xfe"]),
        (b"", []),
        (b"\n", []),
    ]:
        with subtests.test(sent=sent, found=found):
            assert cut(sent) == found


def test_a_line_of_the_maximum_length_is_complete() -> None:
    assert cut(b"x" * MOST + b"\n") == [b"x" * MOST]
    assert cut(b"x" * MOST + b"\r\n") == [b"x" * MOST]
    assert cut(b"\xef\xbb\xbf" + b"x" * MOST + b"\r\n") == [b"x" * MOST]


def test_a_line_that_is_too_long_is_marked_and_the_next_is_complete() -> None:
    assert cut(b"x" * (MOST + 1) + b"\n{}\n") == [b"x" * (MOST + 1), b"{}"]
    assert cut(b"x" * 1000 + b"\n{}\n") == [b"x" * (MOST + 1), b"{}"]
    assert cut(b"x" * 1000) == [b"x" * (MOST + 1)]


def test_a_line_that_is_too_long_is_reported_before_its_end_and_discarded() -> None:
    lines = LineSplitter(MOST)
    assert lines.feed(b"x" * 1000) == [b"x" * (MOST + 1)]
    for _ in range(100):
        assert lines.feed(b"y" * 1000) == []
    assert not lines._partial_line
    assert lines.feed(b"\n{}\n") == [b"{}"]


@given(
    st.lists(st.binary(max_size=14).filter(lambda line: b"\n" not in line), max_size=8),
    st.lists(st.integers(0, 120), max_size=12),
    st.booleans(),
)
def test_the_split_of_the_bytes_makes_no_difference(sent: list[bytes], cuts: list[int], ended: bool) -> None:
    whole = b"\n".join(sent) + b"\n" * ended
    places = sorted({min(place, len(whole)) for place in cuts} | {0, len(whole)})
    parts = [whole[start:end] for start, end in itertools.pairwise(places)]
    assert cut(*parts) == cut(whole)
    assert cut(*[whole[place : place + 1] for place in range(len(whole))]) == cut(whole)


async def test_a_reader_returns_lines_and_then_the_end(pipe: tuple[int, int]) -> None:
    source, client = pipe
    reader = LineReader(source, MOST)
    os.write(client, b"{}\n[")
    assert await reader.read() == [b"{}"]
    os.write(client, b"1]\n2")
    assert await reader.read() == [b"[1]"]
    os.close(client)
    assert await reader.read() == [b"2"]
    assert await reader.read() is None
    assert await reader.read() is None
    reader.close()


async def test_files_and_dev_null_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "messages"
    file.write_bytes(b"{}\n")
    reader = LineReader(os.open(file, os.O_RDONLY), MOST)
    assert await reader.read() == [b"{}"]
    assert await reader.read() is None
    reader.close()
    nothing = LineReader(os.open(os.devnull, os.O_RDONLY), MOST)
    assert await nothing.read() is None
    nothing.close()


async def test_terminals_can_be_read_and_written_and_hung_up() -> None:
    person, terminal = os.openpty()
    tty.setraw(terminal)
    reader, writer = LineReader(os.dup(terminal), MOST), LineWriter(terminal)
    os.write(person, b"{}\n")
    assert await reader.read() == [b"{}"]
    await writer.write([b"[]"])
    assert os.read(person, 100) == b"[]\n"
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    os.close(person)
    assert await waiting is None
    reader.close()
    writer.close()


async def test_descriptors_that_do_not_block_are_waited_for(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    os.set_blocking(source, False)
    os.set_blocking(sink, False)
    reader, writer = LineReader(source, 1 << 20), LineWriter(sink)
    message = b"x" * 300_000
    writing = asyncio.ensure_future(writer.write([message]))
    assert await reader.read() == [message]
    await writing
    reader.close()
    writer.close()


async def test_a_writer_waits_for_its_reader_and_the_loop_does_not(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    writer = LineWriter(sink)
    message = b"x" * 300_000
    writing = asyncio.ensure_future(writer.write([message, b"{}"]))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not writing.done()
    reader = LineReader(source, 1 << 20)
    found: list[bytes] = []
    while len(found) < 2:
        found += await reader.read() or []
    assert found == [message, b"{}"]
    await writing
    writer.close()
    reader.close()


async def test_a_writer_gets_an_error_without_a_reader(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    os.close(source)
    writer = LineWriter(sink)
    with pytest.raises(BrokenPipeError):
        await writer.write([b"{}"])
    writer.close()


async def test_the_threads_end_with_their_reader_and_writer(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    before = set(threading.enumerate())
    reader, writer = LineReader(source, MOST), LineWriter(sink)
    threads = set(threading.enumerate()) - before
    assert len(threads) == 2
    assert all(thread.daemon for thread in threads)
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    waiting.cancel()
    reader.close()
    writer.close()  # which ends the read that has begun
    for thread in threads:
        await asyncio.to_thread(thread.join, WAIT_SECONDS)
        assert not thread.is_alive()


async def test_a_descriptor_is_closed_once(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    source, sink = pipe
    closed: list[int] = []
    close = os.close
    monkeypatch.setattr(os, "close", lambda descriptor: closed.append(descriptor) or close(descriptor))
    before = set(threading.enumerate())
    reader, writer = LineReader(source, MOST), LineWriter(sink)
    threads = set(threading.enumerate()) - before
    for _ in range(2):  # the number may be that of something else by then
        writer.close()
        reader.close()
    for thread in threads:
        await asyncio.to_thread(thread.join, WAIT_SECONDS)
    assert sorted(closed) == sorted(pipe)


async def test_a_writer_waits_until_its_data_is_read(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    writer = LineWriter(sink)
    await writer.write([b"progress"])
    waiting = asyncio.ensure_future(writer.wait_until_read())
    assert await asyncio.to_thread(os.read, source, 100) == b"progress\n"
    await waiting
    await writer.wait_until_read()
    await writer.write([b"answer"])
    assert await asyncio.to_thread(os.read, source, 100) == b"answer\n"
    writer.close()


def test_an_answer_is_not_written_with_the_progress_before_it() -> None:
    progress = jsonrpc.notification("notifications/progress", {"progressToken": 1, "progress": 1})
    other = jsonrpc.notification("notifications/message", {"level": "info", "data": "x"})
    answer = jsonrpc.result(1, {})
    assert split_after_progress([other, progress, progress, answer, answer]) == [
        [other, progress, progress],
        [answer, answer],
    ]
    assert split_after_progress([progress]) == [[progress]]
    assert split_after_progress([answer, progress]) == [[answer, progress]]

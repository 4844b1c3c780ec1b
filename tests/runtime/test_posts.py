"""POSTs of HTTP+SSE that reach another worker than the one with the client's stream."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.db import OperationalError

from mcp_django.models import StreamEvent
from mcp_django.runtime import feed, posts
from mcp_django.runtime.executor import LaneExecutor
from mcp_django.runtime.feeds import Feeds
from mcp_django.runtime.posts import Fate, Posts
from mcp_django.server.ports import Overloaded

from .serving import eventually, real_threads, serve
from .wakes import Layer

NOBODY = frozenset[str]()


class Stream:
    """What messages come in at."""

    def __init__(self, fate: Fate = Fate.TAKEN) -> None:
        self.fate, self.taken = fate, list[bytes]()
        self.scopes = list[frozenset[str]]()
        self.opened = asyncio.Event()
        self.opened.set()

    async def take(self, body: bytes, scopes: frozenset[str]) -> Fate:
        await self.opened.wait()
        self.taken.append(body)
        self.scopes.append(scopes)
        return self.fate


class Process:
    """One worker, as far as POSTs need it."""

    def __init__(self, executor: LaneExecutor, layer: Layer | None) -> None:
        self.feeds = Feeds(executor=lambda: executor, layer=lambda: layer, keep=lambda: 600.0)
        self.posts = Posts(self.feeds, executor)


def workers(main: Callable[[Process, Process], Awaitable[Any]], layer: Layer | None = None) -> None:
    """Run `main` with the worker that has the streams and another one."""

    async def both(executor: LaneExecutor) -> None:
        ours, theirs = Process(executor, layer), Process(executor, layer)
        try:
            await main(ours, theirs)
        finally:
            for process in (ours, theirs):
                await process.feeds.here().close()
                process.feeds._crier.finish()

    serve(both)


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is not looked at without a reason."""
    monkeypatch.setattr(feed, "POLL", 60.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for another worker."""
    monkeypatch.setattr(posts, "ANSWER_WITHIN", 1.0)
    monkeypatch.setattr(feed, "POLL", 0.02)


@real_threads
def test_a_message_comes_to_the_worker_that_has_the_stream(seldom: None) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        assert await gets.posts.post(name, '{"ä": 1}'.encode(), frozenset({"b", "a"})) is Fate.TAKEN
        assert (stream.taken, stream.scopes) == (['{"ä": 1}'.encode()], [frozenset({"a", "b"})])

    workers(main, Layer())


@real_threads
def test_without_a_layer_it_comes_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "POLL", 0.05)

    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        assert await gets.posts.post(await holds.posts.add(stream), b"{}", NOBODY) is Fate.TAKEN
        assert stream.taken == [b"{}"]

    workers(main)


@real_threads
def test_on_one_worker_nothing_is_written() -> None:
    async def main(holds: Process, _: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        assert await holds.posts.post(name, b"{}", NOBODY) is Fate.TAKEN
        holds.posts.discard(name)
        assert await holds.posts.post(name, b"{}", NOBODY) is Fate.GONE
        assert stream.taken == [b"{}"]

    workers(main)
    assert not StreamEvent.objects.exists()


@real_threads
@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.BUSY])
def test_what_the_stream_says_of_a_message_is_passed_back_and_not_remembered(seldom: None, fate: Fate) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream(fate)
        name = await holds.posts.add(stream)
        assert await gets.posts.post(name, b"{}", NOBODY) is fate
        stream.fate = Fate.TAKEN
        assert await gets.posts.post(name, b"{}", NOBODY) is Fate.TAKEN

    workers(main, Layer())


@real_threads
def test_a_stream_that_is_gone_is_asked_for_once(seldom: None) -> None:
    async def main(holds: Process, gets: Process) -> None:
        name = await holds.posts.add(Stream())
        holds.posts.discard(name)
        for _ in range(3):
            assert await gets.posts.post(name, b"{}", NOBODY) is Fate.GONE

    workers(main, Layer())
    assert StreamEvent.objects.filter(kind="post").count() == 1


@real_threads
def test_messages_of_one_client_arrive_in_the_order_in_which_it_waited_for_them(seldom: None) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        for n in range(50):
            await (holds if n % 3 else gets).posts.post(name, b"%d" % n, NOBODY)
        assert stream.taken == [b"%d" % n for n in range(50)]

    workers(main, Layer())


@real_threads
def test_many_at_once_are_taken_once_each(seldom: None) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        sent = [gets.posts.post(name, b"%d" % n, NOBODY) for n in range(100)]
        assert set(await asyncio.gather(*sent)) == {Fate.TAKEN}
        assert sorted(stream.taken, key=int) == [b"%d" % n for n in range(100)]

    workers(main, Layer())
    assert StreamEvent.objects.filter(kind="post").count() == 100


@real_threads
def test_a_stream_whose_worker_was_killed_is_gone_in_bounded_time(impatient: None) -> None:
    async def main(holds: Process, gets: Process) -> None:
        name = await holds.posts.add(Stream())
        await holds.feeds.here().close()
        for _ in range(3):
            assert await gets.posts.post(name, b"{}", NOBODY) is Fate.GONE

    workers(main)
    # A client that tries again at once neither waits nor writes.
    assert StreamEvent.objects.filter(kind="post").count() == 1


@real_threads
def test_a_worker_that_was_only_slow_does_not_act_on_a_message_that_nobody_waits_for(impatient: None) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        stream.opened.clear()
        name = await holds.posts.add(stream)
        assert await gets.posts.post(name, b"{}", NOBODY) is Fate.GONE
        await eventually(lambda: not holds.posts._taking)
        stream.opened.set()
        await asyncio.sleep(0)
        assert stream.taken == []

    workers(main)


@real_threads
def test_a_worker_that_reads_the_log_late_does_not_act_on_it_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posts, "ANSWER_WITHIN", 1.0)
    monkeypatch.setattr(posts, "UNBLANKED", 1)
    monkeypatch.setattr(feed, "POLL", 60.0)

    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        await gets.posts._attend()  # a busy machine takes longer for this than what is tried may take
        assert await gets.posts.post(name, b"{}", NOBODY) is Fate.GONE
        await eventually(lambda: not gets.posts._tasks)
        # It hears now of what was there all the time.
        before = holds.feeds.here().position
        holds.feeds.here()._asked.set()
        await eventually(lambda: holds.feeds.here().position > before and not holds.posts._tasks)
        assert stream.taken == []

    workers(main)
    assert [e.payload for e in StreamEvent.objects.filter(kind="post")] == ["null"]


@real_threads
def test_a_log_that_is_down_is_said_to_be(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def main(holds: Process, gets: Process) -> None:
        name = await holds.posts.add(Stream())

        async def fail(*_: Any) -> None:
            raise OperationalError("down")

        with monkeypatch.context() as broken:
            broken.setattr(gets.feeds, "publish", fail)
            with pytest.raises(Overloaded, match="try again later"):
                await gets.posts.post(name, b"{}", NOBODY)

    workers(main, Layer())
    assert "could not be passed on" in caplog.text


@real_threads
def test_a_log_that_hangs_is_said_to_be_down_and_its_message_is_taken_back(
    impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        stream.opened.clear()
        name, opened, publish = await holds.posts.add(stream), asyncio.Event(), gets.feeds.publish

        async def hang(*drafts: Any) -> Any:
            await opened.wait()
            return await publish(*drafts)

        monkeypatch.setattr(gets.feeds, "publish", hang)
        with pytest.raises(Overloaded, match="try again later"):
            await gets.posts.post(name, b"{}", NOBODY)
        opened.set()
        await eventually(lambda: not gets.posts._tasks)
        await eventually(lambda: not holds.posts._taking and not holds.posts._tasks)
        assert stream.taken == []

    workers(main)


@real_threads
def test_a_stream_is_opened_only_where_messages_can_be_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(holds: Process, _: Process) -> None:
        async def fail(*_: Any, **__: Any) -> None:
            raise OperationalError("down")

        with monkeypatch.context() as broken:
            broken.setattr(holds.feeds.here(), "follow", fail)
            with pytest.raises(Overloaded, match="try again later"):
                await holds.posts.add(Stream())
        assert await holds.posts.add(Stream())

    workers(main)


@real_threads
def test_what_was_heard_does_not_stay_in_the_log_by_the_megabyte(seldom: None, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name, body = await holds.posts.add(stream), b'"%b"' % (b"x" * 100_000)
        for _ in range(6):
            assert await gets.posts.post(name, body, NOBODY) is Fate.TAKEN
        await eventually(lambda: not gets.posts._tasks)
        assert stream.taken == [body] * 6

    workers(main, Layer())
    rows = list(StreamEvent.objects.order_by("seq").values_list("seq", "payload"))
    assert sum(len(payload) for _, payload in rows) < 3 * 110_000
    assert [seq for seq, _ in rows] == list(range(rows[0][0], rows[0][0] + len(rows)))


@real_threads
def test_a_client_that_hangs_up_while_its_message_is_on_its_way_leaves_nothing_behind(seldom: None) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        stream.opened.clear()
        posting = asyncio.create_task(gets.posts.post(await holds.posts.add(stream), b"{}", NOBODY))
        await eventually(lambda: bool(holds.posts._taking))
        posting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await posting
        stream.opened.set()
        await eventually(lambda: not holds.posts._tasks and not gets.posts._tasks)
        assert not gets.posts._asked
        assert stream.taken == [b"{}"]

    workers(main, Layer())


@real_threads
def test_nothing_is_followed_when_there_is_nothing_to_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posts, "LOOK_EVERY", 0.01)

    async def main(holds: Process, _: Process) -> None:
        first = await holds.posts.add(Stream())
        await asyncio.sleep(0.05)
        assert holds.posts._following is not None
        holds.posts.discard(first)
        await eventually(lambda: holds.posts._following is None)
        stream = Stream()
        assert await holds.posts.post(await holds.posts.add(stream), b"{}", NOBODY) is Fate.TAKEN
        assert holds.posts._following is not None

    workers(main)

import asyncio
from typing import Any

import pytest

from mcp_django import Server
from mcp_django.providers import Provider
from mcp_django.runtime.events import list_changes as module
from mcp_django.runtime.events.event_log import Event, EventDraft
from mcp_django.runtime.events.list_changes import ListChangeDetector
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.threads.executor import LeasingExecutor
from tests.server.client import ports
from tests.support.clock import Clock

from .serving import real_threads, serve

pytestmark = real_threads
TOPIC = "changes:default"


class Stock(Provider):
    """A source whose version a test sets."""

    offers = frozenset({"tools", "prompts", "completions"})

    def __init__(self) -> None:
        self.number: int | None = 1
        self.broken = False
        self.looks = 0

    def refresh(self) -> None:
        self.looks += 1

    @property
    def version(self) -> int | None:
        if self.broken:
            raise RuntimeError("no version at the moment")
        return self.number


class Process:
    """One of several, with a server and a feed of its own."""

    def __init__(self, executor: LeasingExecutor, clock: Clock, *, settled_after: float = 60.0) -> None:
        self.clock = clock
        self.stock = Stock()
        self.server = Server("tests", providers=[self.stock], ports=ports(executor=executor))
        self.forgotten = 0
        self.feeds = EventPublisher(
            executor=executor,
            layer=None,
            retention_seconds=600,
            create_detector=lambda feeds: ListChangeDetector(
                feeds.publish,
                get_server=lambda alias: self.server,
                clear_permission_caches=self._forget,
                settle_seconds=settled_after,
            ),
        )
        self.heard: list[Any] = []

    def _forget(self) -> None:
        self.forgotten += 1

    async def listen(self) -> Any:
        return await self.feeds.get_follower().subscribe(TOPIC, lambda event: self.heard.append(event.payload))

    @property
    def watch(self) -> ListChangeDetector:
        watch = self.feeds.get_follower().detector
        assert isinstance(watch, ListChangeDetector)
        return watch

    def versions(self) -> list[str | None]:
        return module._read_versions([one for one in self.server.providers if one.has_version])

    @property
    def word(self) -> str:
        return module._hash_versions(self.versions())

    async def until_looked(self) -> None:
        """Let time pass until the current versions were read."""
        await self.clock.advance_until(lambda: "default" in self.watch._snapshots)
        seen = self.watch._snapshots["default"]
        await self.clock.advance_until(lambda: seen.provider_versions == self.versions())


def test_what_is_registered_while_somebody_listens_is_told(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        process = Process(executor, clock)
        await process.listen()
        await process.until_looked()
        process.server.tool(lambda: "", name="late")
        await clock.advance_until(lambda: process.heard == [{"kind": "tools"}])
        process.server.resource("a:{b}")(lambda b: b)
        await clock.advance_until(lambda: process.heard[1:] == [{"kind": "resources"}])

    serve(main)


def test_a_provider_that_comes_while_somebody_listens_changes_the_lists_it_offers(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        process = Process(executor, clock)
        await process.listen()
        await process.until_looked()
        process.server.providers += (Stock(),)
        await clock.advance_until(lambda: {"kind": "tools", "version": process.word} in process.heard)
        await process.until_looked()

    serve(main)


def test_a_provider_with_another_version_changes_the_lists_it_offers(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        process = Process(executor, clock)
        await process.listen()
        await process.until_looked()
        process.stock.number = 2
        await clock.advance_until(lambda: len(process.heard) == 2)
        assert [said["kind"] for said in process.heard] == ["tools", "prompts"]

    serve(main)


def test_what_one_process_has_told_of_a_provider_another_does_not_repeat(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        one, other = Process(executor, clock), Process(executor, clock)
        for process in (one, other):
            await process.listen()
            await process.until_looked()
        one.stock.number = 2
        await clock.advance_until(lambda: len(other.heard) == 2)
        other.stock.number = 2
        await other.until_looked()
        one.stock.number = other.stock.number = 3
        await clock.advance_until(lambda: any(said["version"] == one.word for said in other.heard))
        await one.until_looked()
        await other.until_looked()
        assert [said["kind"] for said in other.heard[:2]] == ["tools", "prompts"]
        assert other.heard[2]["version"] == one.word

    serve(main)


def test_a_version_that_is_not_known_is_no_change(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        process = Process(executor, clock)
        process.stock.number = None
        await process.listen()
        watch = process.watch
        await clock.advance_until(
            lambda: "default" in watch._snapshots and watch._snapshots["default"].provider_versions is not None
        )
        process.stock.number = 1
        await process.until_looked()
        process.stock.number = None
        looks = process.stock.looks
        await clock.advance_until(lambda: process.stock.looks > looks + 2)
        process.stock.number = 1
        looks = process.stock.looks
        await clock.advance_until(lambda: process.stock.looks > looks + 2)
        assert process.heard == []
        process.stock.number = 2
        await clock.advance_until(lambda: len(process.heard) == 2)

    serve(main)


def test_a_version_that_cannot_be_read_is_read_again(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async def main(executor: LeasingExecutor) -> None:
        process = Process(executor, clock)
        await process.listen()
        await process.until_looked()
        process.stock.broken = True
        await clock.advance_until(lambda: "Failed to detect" in caplog.text)
        process.stock.number, process.stock.broken = 2, False
        await clock.advance_until(lambda: len(process.heard) == 2)

    serve(main)


def test_nothing_is_looked_at_while_nobody_listens(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        process = Process(executor, clock)
        following = await process.listen()
        await process.until_looked()
        following.stop()
        await clock.advance_until(lambda: not process.feeds.get_follower().is_active)
        process.stock.number = 2
        process.server.tool(lambda: "", name="late")
        await process.listen()
        await process.until_looked()
        assert process.heard == []

    serve(main)


def test_rights_that_changed_are_told_again_once_when_all_processes_believe_it(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        processes = [Process(executor, clock) for _ in range(3)]
        for process in processes:
            await process.listen()
        changed = {"kind": "tools", "rights": "changed", "user": "7"}
        await processes[0].feeds.publish(EventDraft(TOPIC, "list_changed", changed))
        settled = {**changed, "rights": "settled"}
        for process in processes:
            await clock.advance_until(lambda process=process: settled in process.heard)  # type: ignore[misc]
            assert process.heard[0] == changed
            assert process.forgotten == 1
            assert not process.watch._settle_timers

    serve(main)


def test_rights_that_change_again_are_settled_from_then_on(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        watch = Process(executor, clock).feeds.get_follower().detector
        assert isinstance(watch, ListChangeDetector)
        alarms = []
        for seq in (1, 2):
            watch.on_list_changed(Event(seq, TOPIC, "list_changed", {"kind": "tools", "rights": "changed"}))
            alarms += watch._settle_timers.values()
        earlier, alarm = alarms
        assert earlier.cancelled()
        assert not alarm.cancelled()
        watch.close()
        assert alarm.cancelled()
        await asyncio.sleep(0)

    serve(main)

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
from tests.runtime.serving import real_threads, serve
from tests.server.client import ports
from tests.support.clock import Clock

pytestmark = real_threads
TOPIC = "changes:default"


class VersionedProvider(Provider):
    """A provider whose version a test sets."""

    offers = frozenset({"tools", "prompts", "completions"})

    def __init__(self) -> None:
        self.number: int | None = 1
        self.broken = False
        self.refreshes = 0

    def refresh(self) -> None:
        self.refreshes += 1

    @property
    def version(self) -> int | None:
        if self.broken:
            raise RuntimeError("no version at the moment")
        return self.number


class Process:
    """One of several processes, with a server and a publisher of its own."""

    def __init__(self, executor: LeasingExecutor, clock: Clock, *, settled_after: float = 60.0) -> None:
        self.clock = clock
        self.stock = VersionedProvider()
        self.server = Server("tests", providers=[self.stock], ports=ports(executor=executor))
        self.forgotten = 0
        self.feeds = EventPublisher(
            executor=executor,
            layer=None,
            retention_seconds=600,
            create_detector=lambda feeds: ListChangeDetector(
                feeds.publish,
                get_server=lambda alias: self.server,
                clear_permission_caches=self._count_cache_clear,
                settle_seconds=settled_after,
            ),
        )
        self.received: list[Any] = []

    def _count_cache_clear(self) -> None:
        self.forgotten += 1

    async def listen(self) -> Any:
        return await self.feeds.get_follower().subscribe(TOPIC, lambda event: self.received.append(event.payload))

    @property
    def watch(self) -> ListChangeDetector:
        watch = self.feeds.get_follower().detector
        assert isinstance(watch, ListChangeDetector)
        return watch

    def versions(self) -> list[str | None]:
        return module._read_versions([one for one in self.server.providers if one.has_version])

    @property
    def version_hash(self) -> str:
        return module._hash_versions(self.versions())

    async def wait_for_detection(self) -> None:
        """Let time pass until the detector has read the current versions."""
        await self.clock.advance_until(lambda: "default" in self.watch._snapshots)
        seen = self.watch._snapshots["default"]
        await self.clock.advance_until(lambda: seen.provider_versions == self.versions())


def test_a_registration_while_a_subscriber_listens_is_announced(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        process = Process(executor, clock)
        await process.listen()
        await process.wait_for_detection()
        process.server.tool(lambda: "", name="late")
        await clock.advance_until(lambda: process.received == [{"kind": "tools"}])
        process.server.resource("a:{b}")(lambda b: b)
        await clock.advance_until(lambda: process.received[1:] == [{"kind": "resources"}])

    serve(main)


def test_a_provider_added_while_a_subscriber_listens_changes_its_lists(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        process = Process(executor, clock)
        await process.listen()
        await process.wait_for_detection()
        process.server.providers += (VersionedProvider(),)
        await clock.advance_until(lambda: {"kind": "tools", "version": process.version_hash} in process.received)
        await process.wait_for_detection()

    serve(main)


def test_a_new_version_of_a_provider_changes_its_lists(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        process = Process(executor, clock)
        await process.listen()
        await process.wait_for_detection()
        process.stock.number = 2
        await clock.advance_until(lambda: len(process.received) == 2)
        assert [change["kind"] for change in process.received] == ["tools", "prompts"]

    serve(main)


def test_a_change_announced_by_one_process_is_not_repeated_by_another(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        one, other = Process(executor, clock), Process(executor, clock)
        for process in (one, other):
            await process.listen()
            await process.wait_for_detection()
        one.stock.number = 2
        await clock.advance_until(lambda: len(other.received) == 2)
        other.stock.number = 2
        await other.wait_for_detection()
        one.stock.number = other.stock.number = 3
        await clock.advance_until(lambda: any(change["version"] == one.version_hash for change in other.received))
        await one.wait_for_detection()
        await other.wait_for_detection()
        assert [change["kind"] for change in other.received[:2]] == ["tools", "prompts"]
        assert other.received[2]["version"] == one.version_hash

    serve(main)


def test_an_unknown_version_is_no_change(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        process = Process(executor, clock)
        process.stock.number = None
        await process.listen()
        watch = process.watch
        await clock.advance_until(
            lambda: "default" in watch._snapshots and watch._snapshots["default"].provider_versions is not None
        )
        process.stock.number = 1
        await process.wait_for_detection()
        process.stock.number = None
        refreshes = process.stock.refreshes
        await clock.advance_until(lambda: process.stock.refreshes > refreshes + 2)
        process.stock.number = 1
        refreshes = process.stock.refreshes
        await clock.advance_until(lambda: process.stock.refreshes > refreshes + 2)
        assert process.received == []
        process.stock.number = 2
        await clock.advance_until(lambda: len(process.received) == 2)

    serve(main)


def test_a_version_that_cannot_be_read_is_read_again(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async def main(executor: LeasingExecutor) -> None:
        process = Process(executor, clock)
        await process.listen()
        await process.wait_for_detection()
        process.stock.broken = True
        await clock.advance_until(lambda: "Failed to detect" in caplog.text)
        process.stock.number, process.stock.broken = 2, False
        await clock.advance_until(lambda: len(process.received) == 2)

    serve(main)


def test_versions_are_not_read_without_subscribers(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        process = Process(executor, clock)
        following = await process.listen()
        await process.wait_for_detection()
        following.stop()
        await clock.advance_until(lambda: not process.feeds.get_follower().is_active)
        process.stock.number = 2
        process.server.tool(lambda: "", name="late")
        await process.listen()
        await process.wait_for_detection()
        assert process.received == []

    serve(main)


def test_changed_permissions_are_announced_again_once_after_the_settle_time(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        processes = [Process(executor, clock) for _ in range(3)]
        for process in processes:
            await process.listen()
        changed = {"kind": "tools", "rights": "changed", "user": "7"}
        await processes[0].feeds.publish(EventDraft(TOPIC, "list_changed", changed))
        settled = {**changed, "rights": "settled"}
        for process in processes:
            # mypy: the type of a lambda with defaults cannot be inferred.
            await clock.advance_until(lambda process=process: settled in process.received)  # type: ignore[misc]
            assert process.received[0] == changed
            assert process.forgotten == 1
            assert not process.watch._settle_timers

    serve(main)


def test_permissions_that_change_again_restart_the_settle_time(clock: Clock) -> None:
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

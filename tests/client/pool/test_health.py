"""The health of servers: counters, error texts, and reports."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import DatabaseError
from django.test import override_settings
from django.utils import timezone

from mcp_django.client import (
    AuthorizationNeeded,
    CallError,
    CallTimeout,
    ClientConnectionError,
    aclose_clients,
    get_client,
)
from mcp_django.client.pool import factory, health
from mcp_django.client.pool.health import (
    HEALTH_REGISTRY,
    HealthRegistry,
    HealthReporter,
    describe_error,
    get_process_name,
)
from mcp_django.client.pool.health_check import check_client, check_clients
from mcp_django.conf.clients import ClientAuth, ClientSettings
from mcp_django.models import ClientHealth
from tests.client.script import Script
from tests.support.clock import Clock

ONE = ClientSettings(alias="one", url="https://one.example/mcp")
TOOLS = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    HEALTH_REGISTRY.reset_after_fork()
    yield
    HEALTH_REGISTRY.reset_after_fork()


def test_connections_are_counted_from_the_first_to_the_last() -> None:
    board = HealthRegistry()
    for _ in range(2):
        board.record_connected("one", protocol_version="r1", server="names 1")
    found = board.get("one")
    assert (found.connections, found.protocol_version, found.server) == (2, "r1", "names 1")
    since = found.since
    board.record_disconnected("one")
    assert (found.connections, found.since) == (1, since)
    board.record_disconnected("one")
    assert (found.connections, found.since) == (0, None)
    board.record_disconnected("one")
    assert found.connections == 0
    assert found.reached is not None


def test_the_latest_call_counts_most() -> None:
    board = HealthRegistry()
    board.record_call("one", 1.0)
    assert board.get("one").latency == 1.0
    board.record_call("one", 2.0)
    assert board.get("one").latency == pytest.approx(1.2)
    assert board.get("one").calls == 2


def test_the_details_of_a_server_are_cut_and_printable() -> None:
    board = HealthRegistry()
    board.record_connected("one", protocol_version="r" * 100, server="\x1b[31m" + "n" * 1000)
    found = board.get("one")
    assert len(found.protocol_version) == 32
    assert len(found.server) == 200
    assert found.server.isprintable()


def test_only_calls_without_an_answer_are_failures() -> None:
    board = HealthRegistry()
    board.record_failure(ONE, ClientConnectionError("It is down"), is_call=False)
    assert (board.get("one").calls, board.get("one").failures) == (0, 0)
    board.record_failure(ONE, CallTimeout("It did not answer"), is_call=True)
    found = board.get("one")
    assert (found.calls, found.failures, found.error, found.error_text) == (1, 1, "CallTimeout", "It did not answer")


SECRETIVE = ClientSettings(
    alias="one",
    url="https://one.example/mcp?key=s3cret-query",
    headers={"Authorization": "Basic s3cret-header"},
    env={"KEY": "s3cret-variable"},
    command=("run", "--key=s3cret-argument", "s3cret-word"),
    auth=ClientAuth(type="bearer", token="s3cret-token", client_secret="s3cret-client"),
)


def test_no_secret_of_the_setting_is_in_a_report(subtests: pytest.Subtests) -> None:
    for part in ["query", "header", "variable", "argument", "word", "token", "client"]:
        with subtests.test(part=part):
            said = describe_error(ClientConnectionError(f"It refused s3cret-{part} of\nyours"), SECRETIVE)
            assert said == "It refused … of yours"


def test_an_error_is_one_line(subtests: pytest.Subtests) -> None:
    for error, said in [
        (CallError(-32603, "s3cret of theirs"), "The server responded with error -32603"),
        (RuntimeError("s3cret of ours"), "Unexpected error; see the log"),
        (AuthorizationNeeded("Allow it", "one", "https://s3cret"), "Allow it"),
        (ClientConnectionError("x" * 1000), "x" * 299 + "…"),
    ]:
        with subtests.test(error=error, said=said):
            assert describe_error(error, ONE) == said
            assert describe_error(error, None) == said


@pytest.fixture
def record_writes(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the aliases of each report."""
    found: list[list[str]] = []
    monkeypatch.setattr(health, "_write_rows", lambda rows: found.append([alias for alias, _ in rows]))
    monkeypatch.setattr(health, "_close_old_connections", lambda: None)
    monkeypatch.setattr(health.connections, "close_all", lambda: None)
    return found


class Timers:
    """Records the timers of a loop, and runs them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.due = 1000.0, list[Any]()
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self.now)
        monkeypatch.setattr(loop, "call_at", self._call_at)

    def _call_at(self, when: float, work: Callable[..., Any], *values: Any) -> Any:
        timer = SimpleNamespace(when=lambda: when, cancel=lambda: self.due.remove(entry))
        entry = (when, work, values)
        self.due.append(entry)
        return timer

    async def run(self, reports: HealthReporter) -> float:
        """Run the next timer, and return its delay."""
        (entry,) = self.due
        self.due.remove(entry)
        waited, self.now = entry[0] - self.now, max(entry[0], self.now)
        entry[1](*entry[2])
        task: Any = reports._task
        await task
        return waited


@pytest.mark.parametrize("apart", [False, True])
async def test_a_process_writes_at_once_and_then_no_more_than_every_15_seconds(
    record_writes: list[list[str]], monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    timers, reports = Timers(monkeypatch), HealthReporter(has_own_thread=apart)
    reports.schedule_write("one")
    reports.schedule_write("two")
    assert await timers.run(reports) == 0
    for _ in range(3):
        reports.schedule_write("one")
    timers.now += 5
    assert await timers.run(reports) == 10
    assert record_writes == [["one", "two"], ["one"]]
    assert timers.due == []


async def test_a_process_repeats_itself_while_it_has_a_connection(
    record_writes: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    timers, reports = Timers(monkeypatch), HealthReporter(has_own_thread=False)
    HEALTH_REGISTRY.record_connected("one", protocol_version="r", server="s")
    reports.schedule_write("one")
    assert await timers.run(reports) == 0
    assert await timers.run(reports) == health.HEARTBEAT_INTERVAL_SECONDS
    HEALTH_REGISTRY.record_disconnected("one")
    reports.schedule_write("one")
    assert await timers.run(reports) == health.WRITE_INTERVAL_SECONDS
    assert timers.due == []


async def test_a_broken_database_does_not_matter(
    record_writes: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(rows: Any) -> None:
        raise DatabaseError("no such table")

    monkeypatch.setattr(health, "_write_rows", fail)
    timers, reports = Timers(monkeypatch), HealthReporter(has_own_thread=False)
    reports.schedule_write("one")
    await timers.run(reports)


async def test_a_stopped_report_writes_nothing(record_writes: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    timers, reports = Timers(monkeypatch), HealthReporter(has_own_thread=False)
    reports.schedule_write("one")
    reports.stop()
    assert timers.due == []


@pytest.mark.django_db
def test_a_process_has_one_row_for_each_server_and_old_rows_are_deleted() -> None:
    old = timezone.now() - timedelta(hours=2)
    ClientHealth.objects.create(process="gone", alias="one", updated=old)
    HEALTH_REGISTRY.record_call("one", 0.5)
    for _ in range(2):
        ClientHealth.objects.report(get_process_name(), "one", HEALTH_REGISTRY.get("one").to_row())
    row = ClientHealth.objects.get()
    assert (row.process, row.alias, row.calls, row.latency) == (get_process_name(), "one", 1, 0.5)
    assert str(row) == f"one ({get_process_name()})"


@pytest.mark.django_db
def test_the_longest_times_fit_the_row() -> None:
    long = ClientSettings(alias="a" * 32, url="https://one.example")
    HEALTH_REGISTRY.record_connected(long.alias, protocol_version="r" * 99, server="s" * 999)
    HEALTH_REGISTRY.record_failure(long, ClientConnectionError("x" * 999), is_call=True)
    row = ClientHealth(
        process=get_process_name(), alias=long.alias, updated=timezone.now(), **HEALTH_REGISTRY.get(long.alias).to_row()
    )
    row.full_clean(exclude=["since", "latency", "tools"])


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Provide the server of the setting."""
    made = Script("stateless", tools_list=TOOLS, tools_call={"content": []})
    monkeypatch.setattr(factory, "create_target", lambda settings, user: made)
    with override_settings(MCP={"CLIENTS": {"one": {"URL": "https://one.example", "MAX_RETRIES": 0}}}):
        yield made


@pytest.mark.django_db
async def test_calls_and_connections_of_a_client_are_counted_and_written(script: Script) -> None:
    client = get_client("one")
    await client.call_tool("add")
    found = HEALTH_REGISTRY.get("one")
    assert (found.connections, found.calls, found.failures, found.server) == (1, 1, 0, "script 1")
    script.answers["tools/call"] = None
    with pytest.raises(CallError):
        await client.call_tool("add")
    assert found.failures == 0
    await client.disconnect()
    script.refusals.append(ClientConnectionError("It is down"))
    with pytest.raises(ClientConnectionError):
        await client.call_tool("add")
    assert (found.connections, found.failures, found.error_text) == (0, 1, "It is down")
    reports: Any = client._manager.observer
    await aclose_clients()
    row = await _row()
    assert (row.process, row.server, row.protocol_version) == (get_process_name(), "script 1", found.protocol_version)
    assert reports.calls == 0


async def _row() -> ClientHealth:
    """Wait for the row, and return it."""
    while (row := await sync_to_async(ClientHealth.objects.first)()) is None:
        await asyncio.sleep(0)
    return row


async def test_a_check_uses_a_connection_of_its_own(script: Script) -> None:
    found = await check_client("one")
    assert (found.reached, found.server, found.era, len(found.tools)) == (True, "script 1", "stateless", 1)
    assert found.connecting is not None
    assert found.latency is not None
    assert (HEALTH_REGISTRY.get("one").tools, HEALTH_REGISTRY.get("one").connections) == (1, 0)
    assert script.opened == 1


async def test_a_server_without_tools_is_checked_as_well(script: Script) -> None:
    script.capabilities = {}
    found = await check_client("one")
    assert (found.reached, found.tools) == (True, ())
    assert script.methods() == []


async def test_a_check_reports_why_a_server_is_down(script: Script) -> None:
    script.refusals.append(ClientConnectionError("It is down"))
    (found,) = await check_clients(["one"])
    assert (found.reached, found.error, found.error_text) == (False, "ClientConnectionError", "It is down")
    assert HEALTH_REGISTRY.get("one").error_text == "It is down"


async def test_a_check_reports_the_page_that_authorizes_it(script: Script) -> None:
    script.refusals.append(AuthorizationNeeded("Allow it", "one", "https://here.example/connect"))
    found = await check_client("one")
    assert (found.error, found.url) == ("AuthorizationNeeded", "https://here.example/connect")


async def test_a_check_has_a_timeout(script: Script, clock: Clock) -> None:
    async def never(params: Any) -> None:
        await asyncio.Event().wait()

    script.answers["server/discover"] = never
    checking = asyncio.create_task(check_client("one", timeout=5))
    await script.until(lambda: script.received)
    await clock.advance(5)
    assert (await checking).error_text == "The server 'one' did not answer within 5 s"

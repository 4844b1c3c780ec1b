"""Handlers and the database: transactions, rows and the threads on which plain handlers run.

They are apart from `tests/server`, whose tests need no database.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import TestCase
from django.utils import timezone

from mcp_django import Context, Server, ToolError
from mcp_django.models import Session as SessionRow
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.calls.session import ServerSession
from mcp_django.testing import TestClient
from mcp_django.wiring import get_ports as wired_ports
from tests.server.calls.test_cleanup import EventLog, server_of
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server, ports
from tests.server.context.test_sampling import CAPABLE, ERAS, Model, use
from tests.server.test_context import in_a_thread
from tests.testapp.models import Book


class Watched(LeasingExecutor):
    """Executor that counts the threads that wait without a lease."""

    waiting = 0

    @contextlib.contextmanager
    def blocking_wait(self) -> Iterator[None]:
        with super().blocking_wait():
            self.waiting += 1
            yield
            self.waiting -= 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("version", ERAS)
def test_a_plain_handler_releases_its_thread_for_the_model_and_not_for_its_tools(version: str) -> None:
    threads: list[int] = []
    waiting: list[tuple[str, int]] = []
    executor = Watched(max_threads=1, max_queued=4)
    server = Server("tests", "1", ports=ports(executor=executor))

    @server.tool
    def ask(ctx: Context) -> str:
        def enrol(group: str) -> str:
            threads.append(threading.get_ident())
            waiting.append(("tool", executor.waiting))
            return Group.objects.create(name=group).name

        threads.append(threading.get_ident())
        said = str(ctx.sync.sample("Go", tools=[enrol]).text)
        return f"{said}: {Group.objects.filter(name='somebody').count()}"

    class Watching(Model):
        def __call__(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
            waiting.append(("model", executor.waiting))
            return super().__call__(method, params)

    async def run() -> str:
        model = Watching([use("enrol", group="somebody")], "done")
        return await PipelineClient(server, version=version, answer=model, capabilities=CAPABLE).text("ask")

    assert asyncio.run(run()) == "done: 1"
    assert len(set(threads)) == 1
    parked = int(version == HANDSHAKE)
    assert waiting == [("model", parked), ("tool", 0), ("model", parked)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("version", ERAS)
def test_a_tool_of_the_loop_may_be_one_transaction(version: str) -> None:
    server = make_server()

    @server.tool(atomic=True)
    def enrol(group: str) -> str:
        Group.objects.create(name=group)
        if group == "nobody":
            raise ToolError("There is nobody")
        return group

    @server.tool
    async def ask(ctx: Context) -> str:
        said = await ctx.sample("Go", tools=["enrol"])
        return f"{said.text}: {[found.name async for found in Group.objects.all()]}"

    async def run() -> str:
        uses = [use("enrol", "a", group="nobody"), use("enrol", "b", group="somebody")]
        peer = PipelineClient(server, version=version, answer=Model(uses, "done"), capabilities=CAPABLE)
        return await peer.text("ask")

    assert asyncio.run(run()) == "done: ['somebody']"


@pytest.mark.django_db(transaction=True)
def test_a_question_inside_a_transaction_is_refused_in_a_thread() -> None:
    questions: list[tuple[str, list[str]]] = [
        ("elicit", ["?"]),
        ("elicit_url", ["?", "https://example.com"]),
        ("sample", ["?"]),
        ("list_roots", []),
    ]

    def book(ctx: Context) -> list[str]:
        found = []
        for ask, arguments in questions:
            with transaction.atomic():
                try:
                    getattr(ctx.sync, ask)(*arguments)
                    found.append(f"{ask}: asked")
                except Exception as problem:
                    found.append(str(problem))
        return found

    found, peer = in_a_thread(book)
    assert len(found) == len(questions)
    assert [text for text in found if "inside a transaction" not in text] == []
    assert peer.rounds == 0


@pytest.mark.django_db
async def test_background_work_runs_after_a_commit_and_not_after_a_rollback() -> None:
    server, done = make_server(), []

    @server.tool(atomic=True)
    def it(fail: bool, ctx: Context) -> None:
        ctx.background(done.append, fail)
        if fail:
            raise ToolError("no")

    peer = PipelineClient(server)
    await peer.call("it", fail=True)
    await peer.call("it", fail=False)
    assert done == [False]


async def end_by_client(session: ServerSession, client: TestClient) -> None:
    await client.close()


async def end_in_admin(session: ServerSession, client: TestClient) -> None:
    await sync_to_async(SessionRow.objects.filter(pk=session.pk).end)("admin")


async def expire(session: ServerSession, client: TestClient) -> None:
    past = timezone.now() - timedelta(seconds=1)
    await SessionRow.objects.filter(pk=session.pk).aupdate(expires=past)
    assert await client.server.ports.sessions.load(session.key, session.owner) is None


@pytest.mark.django_db
@pytest.mark.parametrize("end", [end_by_client, end_in_admin, expire], ids=["client", "admin", "lifetime"])
async def test_cleanup_of_a_session_runs_for_every_end_of_it(
    end: Callable[[ServerSession, TestClient], Awaitable[None]],
) -> None:
    log = EventLog()
    client = TestClient(server_of(log, ports=wired_ports()), revision=HANDSHAKE)
    await client.call_tool("open_it")
    assert client.session is not None
    await end(client.session, client)
    await log.wait_for("ran", "second", "first")


class InsideATestCase(TestCase):
    """The ORM of handlers inside the transaction that Django's TestCase wraps around a test: the inline mode."""

    def peer(self) -> PipelineClient:
        server = make_server()

        @server.tool
        def titles() -> list[str]:
            return list(Book.objects.values_list("title", flat=True))

        @server.tool
        async def titles_async() -> list[str]:
            return [book.title async for book in Book.objects.all()]

        @server.tool
        def add(title: str) -> str:
            assert connection.in_atomic_block
            return Book.objects.create(title=title).title

        @server.tool
        def ask(ctx: Context) -> str:
            answer = ctx.sync.elicit(f"Delete {Book.objects.get().title}?", bool)
            return f"{answer.data} {Book.objects.count()}"

        @server.tool
        def once(ctx: Context) -> int:
            pk = ctx.sync.run_once("add", lambda: Book.objects.create(title="Once").pk)
            ctx.sync.elicit("Keep it?", bool)
            return int(Book.objects.get(pk=pk).title == "Once")

        peer = PipelineClient(server)
        peer.answer = lambda *_: {"action": "accept", "content": {"value": True}}
        return peer

    def test_plain_and_async_handlers_see_the_rows_of_the_test(self) -> None:
        Book.objects.create(title="Solaris")
        peer = self.peer()
        for name in ("titles", "titles_async"):
            assert async_to_sync(peer.text)(name) == '["Solaris"]'

    def test_rows_of_handlers_are_rolled_back_with_the_test(self) -> None:
        assert async_to_sync(self.peer().text)("add", title="Dune") == "Dune"
        assert Book.objects.filter(title="Dune").exists()

    def test_the_transaction_of_a_test_does_not_forbid_questions(self) -> None:
        Book.objects.create(title="Solaris")
        for version in (HANDSHAKE, STATELESS):
            peer = self.peer()
            peer = PipelineClient(peer.server, version=version, answer=peer.answer)
            assert async_to_sync(peer.text)("ask") == "True 1"

    def test_once_runs_a_plain_function_where_the_orm_works(self) -> None:
        for version in (HANDSHAKE, STATELESS):
            Book.objects.all().delete()
            peer = self.peer()
            peer = PipelineClient(peer.server, version=version, answer=peer.answer)
            assert async_to_sync(peer.text)("once") == "1"
            assert Book.objects.count() == 1

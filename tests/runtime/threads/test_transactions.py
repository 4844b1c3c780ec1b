"""A call as one transaction: over the engine, on threads and inline."""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction

from mcp_django import Context, Depends, MCPError, Server, ToolError
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.runtime.threads.lease import ThreadLease
from mcp_django.runtime.threads.transactions import CallTransaction
from mcp_django.server.primitives.base import Completion
from mcp_django.server.primitives.results import ToolResult
from tests.runtime.serving import WAIT_SECONDS, Gate, Statement, eventually, real_threads, serve, start_call
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_server

Run = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]
ERAS = [STATELESS, HANDSHAKE]


def on_threads(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run calls as a server does."""

    async def controlled() -> Any:
        return await main()

    return asyncio.run(controlled())


def inline(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run calls as tests, WSGI and commands do."""

    async def marked() -> Any:
        return await main()

    return async_to_sync(marked)()


@pytest.fixture(params=[on_threads, inline])
def run(request: Any, transactional_db: None) -> Run:
    """Run the test in both ways."""
    runs: Run = request.param
    return runs


def add(name: str = "written") -> None:
    Group.objects.create(name=name)


def names() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


def fail_plain(kind: type[BaseException]) -> None:
    add()
    raise kind("wrong")


async def fail_async(kind: type[BaseException]) -> None:
    await asyncio.gather(*[Group.objects.acreate(name=f"g{number}") for number in range(3)])
    raise kind("wrong")


class TestRollingBack:
    def test_any_exception_rolls_all_of_it_back(self, subtests: pytest.Subtests, run: Run) -> None:
        server = make_server()
        hooks: list[str] = []
        kinds = {kind.__name__: kind for kind in (ToolError, ValueError, MCPError, Group.DoesNotExist, SystemExit)}

        @server.tool(atomic=True)
        def fails(kind: str) -> None:
            transaction.on_commit(lambda: hooks.append("ran"))
            fail_plain(kinds[kind])

        @server.tool(atomic=True)
        async def fails_async(kind: str) -> None:
            await sync_to_async(transaction.on_commit)(lambda: hooks.append("ran"))
            await fail_async(kinds[kind])

        async def call(tool: str, kind: str) -> None:
            try:
                assert (await PipelineClient(server).call(tool, kind=kind))["isError"]
            except MCPError:
                assert kinds[kind] is MCPError

        for tool in ("fails", "fails_async"):
            for kind in kinds:
                with subtests.test(tool=tool, kind=kind):
                    run(functools.partial(call, tool, kind))
                    assert (names(), hooks) == ([], [])

    def test_dependencies_run_in_the_transaction(self, run: Run) -> None:
        server = make_server()

        async def asynchronous() -> str:
            await Group.objects.acreate(name="asynchronous")
            return "a"

        def plain() -> str:
            add("plain")
            return "p"

        @server.tool(atomic=True)
        def work(a: Annotated[str, Depends(asynchronous)], p: Annotated[str, Depends(plain)]) -> None:
            raise ToolError(f"{a}{p}{len(names())}")

        assert run(lambda: PipelineClient(server).error("work")) == "ap2"
        assert names() == []

    def test_guards_interceptors_and_exception_handlers_run_outside_of_it(self, run: Run) -> None:
        server = make_server()

        def guard(ctx: Context) -> None:
            add("guard")

        async def again(ctx: Context, proceed: Any) -> Any:
            await Group.objects.acreate(name="interceptor")
            try:
                return await proceed()
            except ValueError:
                return await proceed()

        def handle(problem: Exception, ctx: Context) -> str:
            add("exception handler")
            return f"handled, of {names()}"

        tries: list[int] = []

        @server.tool(atomic=True, guards=[guard], interceptors=[again], exception_handlers={KeyError: handle})
        def work() -> str:
            add(f"try {len(tries)}")
            tries.append(1)
            raise ValueError if len(tries) == 1 else KeyError

        message = run(lambda: PipelineClient(server).text("work"))
        assert message == "handled, of ['exception handler', 'guard', 'interceptor']"

    def test_a_request_to_the_client_in_it_is_an_error_with_advice(self, subtests: pytest.Subtests, run: Run) -> None:
        for version in ERAS:
            with subtests.test(version=version):
                server = make_server()

                @server.tool(atomic=True)
                async def work(ctx: Context) -> None:
                    await Group.objects.acreate(name="never")
                    await ctx.elicit("Sure?")

                @server.tool(atomic=True)
                def plain(ctx: Context) -> None:
                    add("never")
                    ctx.sync.elicit("Sure?")

                peer = PipelineClient(server, version=version, answer=lambda method, params: accept(value=True))
                for name in ("work", "plain"):
                    assert "atomic=False" in run(functools.partial(peer.error, name))
                assert names() == []

    @pytest.mark.parametrize("version", ERAS)
    def test_without_it_a_handler_may_ask_and_then_open_its_own(self, version: str, transactional_db: None) -> None:
        run = on_threads if version == STATELESS else inline
        server = make_server(options={"atomic": ("default",)})

        @server.tool(atomic=False)
        def work(ctx: Context) -> str:
            ctx.sync.elicit("Sure?")
            with transaction.atomic():
                add()
            return "done"

        peer = PipelineClient(server, version=version, answer=lambda method, params: accept(value=True))
        assert run(lambda: peer.text("work")) == "done"
        assert names() == ["written"]

    def test_a_round_that_ends_with_an_interceptors_request_is_rolled_back(self, run: Run) -> None:
        server = make_server()

        async def swallows(ctx: Context, proceed: Any) -> Any:
            try:
                await ctx.elicit("Sure?")
            except BaseException:
                pass
            return await proceed()

        @server.tool(atomic=True, interceptors=[swallows])
        def work() -> str:
            add()
            return "done"

        assert run(lambda: PipelineClient(server).call("work"))["resultType"] == "input_required"
        assert names() == []


class TestCommitting:
    def test_a_returned_result_is_committed_and_its_hooks_run_then(self, run: Run) -> None:
        server = make_server()
        seen: list[Any] = []

        @server.tool(atomic=True)
        async def work() -> str:
            await sync_to_async(transaction.on_commit)(lambda: seen.append(connection.in_atomic_block))
            await asyncio.gather(*[Group.objects.acreate(name=f"g{number}") for number in range(3)])
            seen.append("returned")
            return "done"

        assert run(lambda: PipelineClient(server).text("work")) == "done"
        assert (names(), seen) == (["g0", "g1", "g2"], ["returned", False])

    def test_all_of_an_async_handler_is_in_the_one_transaction(self, run: Run) -> None:
        server = make_server()

        @server.tool(atomic=True)
        async def work(ctx: Context) -> list[bool]:
            here = sync_to_async(lambda: connection.in_atomic_block)
            one, two = await ctx.gather(here(), asyncio.create_task(here()))
            return [one, two, await ctx.run_once("k", lambda: connection.in_atomic_block)]

        assert run(lambda: PipelineClient(server).text("work")) == "[true,true,true]"

    def test_an_error_that_a_tool_returns_itself_commits(self, run: Run) -> None:
        """As a view that returns a response of status 400 does under ATOMIC_REQUESTS."""
        server = make_server()

        @server.tool(atomic=True)
        def work() -> ToolResult:
            add()
            return ToolResult("no", is_error=True)

        assert run(lambda: PipelineClient(server).error("work")) == "no"
        assert names() == ["written"]

    def test_twenty_concurrent_calls_do_not_mix(self, transactional_db: None) -> None:
        server = make_server()

        @server.tool(atomic=True)
        async def work(number: int) -> None:
            await Group.objects.acreate(name=f"g{number:02}")
            await asyncio.sleep(0)
            await Group.objects.acreate(name=f"h{number:02}")
            if number % 2:
                raise ToolError("odd")

        async def main() -> None:
            executor = server.ports.executor
            assert isinstance(executor, LeasingExecutor)
            # SQLite has one writer at a time, and a transaction that began by reading cannot wait for it.
            executor.max_queued, executor.max_threads = 100, 4 if connection.vendor == "postgresql" else 1
            calls = [start_call(PipelineClient(server).call("work", number=number)) for number in range(20)]
            await asyncio.gather(*calls)

        on_threads(main)
        assert names() == sorted(f"{letter}{number:02}" for number in range(0, 20, 2) for letter in "gh")

    def test_a_commit_that_fails_is_a_failure_of_the_tool(self, run: Run) -> None:
        server = make_server()

        @server.tool(atomic=True)
        def work() -> str:
            # Foreign keys are checked when the transaction is committed.
            group = Group.objects.create(name="never")
            Group.permissions.through.objects.create(group=group, permission_id=10**6)
            return "done"

        async def main() -> list[str]:
            return [await PipelineClient(server).error("work") for _ in range(2)]

        assert all("Internal error" in text for text in run(main))
        assert names() == []


class TestDeclaration:
    def test_it_is_inherited_from_the_server_and_may_be_refused(self, transactional_db: None) -> None:
        server = make_server(options={"atomic": ("default",)})
        within = lambda: connection.in_atomic_block  # noqa: E731
        server.tool(within, name="inherits")
        server.tool(within, name="wants", atomic=True)
        server.tool(within, name="names", atomic=["default"])
        server.tool(within, name="refuses", atomic=False)
        server.tool(within, name="lists_none", atomic=[])

        async def main() -> list[str]:
            return [
                await PipelineClient(server).text(name)
                for name in ("inherits", "wants", "names", "refuses", "lists_none")
            ]

        assert on_threads(main) == ["true", "true", "true", "false", "false"]

    def test_by_default_there_is_no_transaction(self, transactional_db: None) -> None:
        server = make_server()
        server.tool(lambda: connection.in_atomic_block, name="plain")
        assert on_threads(lambda: PipelineClient(server).text("plain")) == "false"

    def test_resources_prompts_and_completions_may_have_one(self, transactional_db: None) -> None:
        server = make_server()
        within = lambda: str(connection.in_atomic_block)  # noqa: E731
        server.resource("r://one", atomic=True)(within)
        server.resource("t://{x}", atomic=True)(lambda x: str(connection.in_atomic_block))
        server.prompt(within, name="p", atomic=True)
        server.completion("t://{x}", "x", atomic=True)(lambda value: Completion([str(connection.in_atomic_block)]))

        async def main() -> list[Any]:
            peer = PipelineClient(server)
            ref = {"type": "ref/resource", "uri": "t://{x}"}
            return [
                (await peer.request("resources/read", {"uri": "r://one"}))["contents"][0]["text"],
                (await peer.request("resources/read", {"uri": "t://1"}))["contents"][0]["text"],
                (await peer.request("prompts/get", {"name": "p"}))["messages"][0]["content"]["text"],
                (await peer.request("completion/complete", {"ref": ref, "argument": {"name": "x", "value": ""}}))[
                    "completion"
                ]["values"][0],
            ]

        assert on_threads(main) == ["True"] * 4

    def test_a_handler_without_one_takes_no_thread(self) -> None:
        server = make_server()

        @server.tool
        async def work() -> str:
            return "done"

        async def main() -> int:
            before = threading.active_count()
            await PipelineClient(server).text("work")
            return threading.active_count() - before

        assert on_threads(main) == 0


class TestCancelling:
    pytestmark = real_threads

    @staticmethod
    def served(server: Server, *, interrupt: bool = True) -> None:
        executor = server.ports.executor
        assert isinstance(executor, LeasingExecutor)
        executor.max_threads, executor.interrupts_sql = 1, interrupt

    @pytest.mark.parametrize("interrupt", [True, False])
    def test_a_plain_handler_is_rolled_back_and_never_commits(self, interrupt: bool, gate: Gate) -> None:
        server = make_server()
        self.served(server, interrupt=interrupt)

        @server.tool(atomic=True)
        def work() -> None:
            add()
            gate()

        async def main() -> None:
            call = start_call(PipelineClient(server).call("work"))
            await gate.until_reached()
            call.cancel()
            await asyncio.wait([call])
            assert call.cancelled()
            gate.opened.set()
            await server.ports.executor.run(lambda: "the thread is back")

        on_threads(main)
        assert names() == []

    def test_an_async_handler_with_long_sql_is_rolled_back_at_once(self) -> None:
        server, statement = make_server(), Statement()
        self.served(server)

        @server.tool(atomic=True)
        async def work() -> None:
            await Group.objects.acreate(name="never")
            await sync_to_async(statement)()

        async def main() -> None:
            call = start_call(PipelineClient(server).call("work"))
            await statement.until_begun()
            call.cancel()
            await asyncio.wait([call])
            await server.ports.executor.run(lambda: "the thread is back")

        on_threads(main)
        assert names() == []

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_timeout_rolls_it_back(self, is_async: bool, caplog: Any) -> None:
        server = make_server()
        self.served(server)

        def plain() -> None:
            add()
            Statement()()

        async def asynchronous() -> None:
            await sync_to_async(plain)()

        server.tool(asynchronous if is_async else plain, name="work", atomic=True, timeout=0.2)

        async def main() -> tuple[str, str]:
            message = await PipelineClient(server).error("work")
            return message, await server.ports.executor.run(lambda: "free")

        message, free = on_threads(main)
        assert "took longer than 0.2 seconds" in message
        assert (free, names()) == ("free", [])
        assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []

    def test_a_handler_that_waits_in_python_is_rolled_back(self) -> None:
        server = make_server()
        self.served(server)
        written = threading.Event()

        @server.tool(atomic=True)
        async def work() -> None:
            await Group.objects.acreate(name="never")
            written.set()
            await asyncio.Event().wait()

        async def main() -> None:
            call = start_call(PipelineClient(server).call("work"))
            await eventually(written.is_set)
            call.cancel()
            await asyncio.wait([call])
            assert await server.ports.executor.run(lambda: connection.in_atomic_block) is False

        on_threads(main)
        assert names() == []

    def test_an_early_cancellation_leaves_no_transaction_open(self, caplog: Any) -> None:
        server = make_server()
        self.served(server)

        @server.tool(atomic=True)
        async def work() -> None:
            await Group.objects.acreate(name="never")
            await asyncio.Event().wait()

        async def main() -> None:
            for turns in range(40):
                call = start_call(PipelineClient(server).call("work"))
                for _ in range(turns * turns // 4):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait([call])
                look = lambda: (connection.in_atomic_block, len(connection.atomic_blocks))  # noqa: E731
                assert await start_call(server.ports.executor.run(look)) == (False, 0)

        on_threads(main)
        assert names() == []
        assert [
            record for record in caplog.records if record.name == "mcp_django.threads" and record.levelno > 20
        ] == []

    def test_a_commit_that_has_begun_goes_on_to_its_end_with_its_hooks(self, gate: Gate) -> None:
        server = make_server()
        self.served(server)
        hooks: list[int] = []

        @server.tool(atomic=True)
        def work() -> None:
            add()
            transaction.on_commit(gate)
            transaction.on_commit(lambda: hooks.append(Group.objects.count()))

        async def main() -> None:
            call = start_call(PipelineClient(server).call("work"))
            await gate.until_reached()
            call.cancel()
            await asyncio.wait([call])
            assert call.cancelled()
            gate.opened.set()
            await server.ports.executor.run(lambda: "the thread is back")

        on_threads(main)
        assert (names(), hooks) == (["written"], [1])

    def test_a_failing_branch_stops_the_sql_of_its_siblings(self) -> None:
        server, statement = make_server(), Statement()
        self.served(server)

        @server.tool(atomic=True)
        async def work() -> None:
            async def fails() -> None:
                await statement.until_begun()
                raise ToolError("one failed")

            await asyncio.gather(sync_to_async(statement)(), fails())

        assert on_threads(lambda: PipelineClient(server).error("work")) == "one failed"
        assert statement.ended.wait(WAIT_SECONDS)
        assert statement.outcome != "ran"

    def test_outside_of_a_call_a_transaction_is_refused(self) -> None:
        async def main(executor: LeasingExecutor) -> None:
            with pytest.raises(RuntimeError, match="acquire a lease"):
                executor.atomic(["default"])

        serve(main)


class TestOnce:
    def test_a_plain_function_of_an_async_handler_runs_on_its_thread(self, run: Run) -> None:
        server = make_server()

        @server.tool
        async def work(ctx: Context) -> list[bool]:
            where = await sync_to_async(threading.current_thread)()
            await ctx.run_once("add", lambda: add("once"))
            return [await ctx.run_once("k", lambda: threading.current_thread() is where)]

        assert run(lambda: PipelineClient(server).text("work")) == "[true]"
        assert names() == ["once"]


class TestInline:
    @pytest.mark.django_db
    async def test_in_a_test_it_is_a_savepoint_of_the_tests_own_transaction(self) -> None:
        server = make_server()

        @server.tool(atomic=True)
        def keeps() -> int:
            add("kept")
            return len(connection.savepoint_ids)

        @server.tool(atomic=True)
        async def fails() -> None:
            await Group.objects.acreate(name="never")
            raise ToolError("no")

        depth = await sync_to_async(lambda: len(connection.savepoint_ids))()
        assert await PipelineClient(server).text("keeps") == str(depth + 1)
        await PipelineClient(server).error("fails")
        assert await sync_to_async(names)() == ["kept"]
        assert await sync_to_async(lambda: connections["default"].in_atomic_block)()


class TestCancelledBetweenThreadAndLoop:
    """The thread is done, or will never begin, and the loop receives a cancellation instead."""

    @staticmethod
    def outcome(cut: str) -> tuple[list[str], bool]:
        """Return the rows after a cancelled block, and whether a transaction is open.

        `cut` is the step of CallTransaction that is cancelled.
        """

        async def main(executor: LeasingExecutor) -> bool:
            async def run(fn: Callable[[], Any]) -> Any:
                if fn.__name__ == "_enter_blocks" == cut:
                    await executor.run(fn)
                if fn.__name__ == cut:
                    raise asyncio.CancelledError
                return await executor.run(fn)

            async def call() -> bool:
                lease = executor.acquire_lease()
                assert isinstance(lease, ThreadLease)
                try:
                    with pytest.raises(asyncio.CancelledError):
                        async with CallTransaction(run, lease, ["default"]):
                            await Group.objects.acreate(name="written")
                    return await executor.run(lambda: connection.in_atomic_block)
                finally:
                    lease.close()

            return await start_call(call())

        left = serve(main, threads=1)
        return names(), left

    def test_nothing_is_written_and_nothing_left_open(self, subtests: pytest.Subtests, transactional_db: None) -> None:
        for cut in ["_enter_blocks", "_commit"]:
            with subtests.test(cut=cut):
                assert self.outcome(cut) == ([], False)

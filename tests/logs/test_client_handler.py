"""The handler that forwards log records of a call to its client."""

import asyncio
import contextvars
import logging
import logging.config
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django import Context
from mcp_django.logs import ClientHandler, client_handler
from mcp_django.protocol.headers import Headers
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import PendingResponse
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_server

logger = logging.getLogger("tests.shop")


@pytest.fixture
def forwarding() -> Iterator[Any]:
    """Make the project's logger forward to clients, with `forwarding(...)`."""
    made: list[ClientHandler] = []

    def forward(**given: Any) -> ClientHandler:
        handler = ClientHandler(**given)
        made.append(handler)
        logging.getLogger().addHandler(handler)
        return handler

    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.DEBUG)
    yield forward
    for handler in made:
        logging.getLogger().removeHandler(handler)
    logging.getLogger().setLevel(level)


def make_peer(handler: Any, *, level: str | None = "debug", **given: Any) -> PipelineClient:
    """Build a client with the level `level`, of a server whose tool `work` is this handler."""
    server = make_server()
    server.tool(handler, name="work")
    return PipelineClient(server, log_level=level, **given)


def get_messages(peer: PipelineClient) -> list[tuple[str, str]]:
    messages = [message["params"] for message in peer.received if message["method"] == "notifications/message"]
    assert all(message["logger"].startswith("tests.") for message in messages)
    return [(message["level"], message["data"]) for message in messages]


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_records_from_wherever_in_a_call_reach_its_client(forwarding: Any, version: str) -> None:
    forwarding()

    async def work() -> None:
        logger.info("on the loop: %d", 1)
        await sync_to_async(logger.info)("on the thread")
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(logger.info, "in a thread of its own"))
        thread.start()
        await asyncio.to_thread(thread.join)
        await asyncio.create_task(asyncio.to_thread(logger.info, "in a task"))

    peer = make_peer(work, version=version, level="info")
    if peer.session is not None:
        peer.session.log_level = "info"
    await peer.call("work")
    assert [data for _, data in get_messages(peer)] == [
        "on the loop: 1",
        "on the thread",
        "in a thread of its own",
        "in a task",
    ]


def test_records_of_a_plain_handler_reach_its_client(forwarding: Any) -> None:
    forwarding()

    def work() -> None:
        logger.warning("plain")

    peer = make_peer(work)
    asyncio.run(peer.call("work"))
    assert get_messages(peer) == [("warning", "plain")]


async def test_levels_are_those_of_the_protocol(forwarding: Any) -> None:
    forwarding()

    async def work() -> None:
        for number in (5, 10, 20, 25, 30, 40, 50, 60, 70):
            logger.log(number, str(number))

    logger.setLevel(1)
    peer = make_peer(work)
    await peer.call("work")
    logger.setLevel(logging.NOTSET)
    names = ["debug", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    assert [level for level, _ in get_messages(peer)] == names


async def test_a_client_receives_records_of_its_level(forwarding: Any) -> None:
    forwarding()

    async def work() -> None:
        logger.debug("a")
        logger.info("b")
        logger.warning("c")

    found = {}
    for level in ("debug", "warning", "emergency", None):
        peer = make_peer(work, level=level)
        await peer.call("work")
        found[level] = len(get_messages(peer))
    assert found == {"debug": 3, "warning": 1, "emergency": 0, None: 0}


async def test_a_changed_level_applies_to_a_running_call(forwarding: Any) -> None:
    forwarding()
    peer: PipelineClient

    async def work(ctx: Context) -> None:
        logger.info("before")
        await ctx.info("before, from the context")
        await peer.request("logging/setLevel", {"level": "error"})
        logger.info("after")
        await ctx.info("after, from the context")
        logger.error("at last")

    peer = make_peer(work, version=HANDSHAKE)
    assert peer.session is not None
    await peer.request("logging/setLevel", {"level": "info"})
    await peer.call("work")
    said = [message["params"]["data"] for message in peer.received]
    assert said == ["before", "before, from the context", "at last"]


async def test_nothing_is_sent_outside_of_a_call_nor_after_it(forwarding: Any) -> None:
    forwarding()
    over = asyncio.Event()

    async def later() -> None:
        await over.wait()
        logger.info("too late")

    tasks = []

    async def work() -> None:
        tasks.append(asyncio.create_task(later()))

    peer = make_peer(work)
    logger.info("too early")
    await peer.call("work")
    over.set()
    await tasks[0]
    assert peer.received == []


async def test_a_repeated_round_sends_no_record_twice(forwarding: Any) -> None:
    forwarding()

    async def work(ctx: Context) -> None:
        logger.info("before")
        await ctx.elicit("Go?", bool)
        logger.info("after")

    peer = make_peer(work, answer=lambda *_: accept(value=True))
    await peer.call("work")
    assert [data for _, data in get_messages(peer)] == ["before", "after"]


async def test_tracebacks_and_texts_of_exceptions_are_not_sent(forwarding: Any) -> None:
    forwarding(exclude=())

    async def work() -> None:
        try:
            raise RuntimeError("the innermost secret")
        except RuntimeError as problem:
            logger.exception("failed with %s", problem)
            logger.error("failed with %(problem)s", {"problem": problem}, stack_info=True)
        raise KeyError("another secret")

    peer = make_peer(work)
    await peer.call("work")
    assert get_messages(peer) == [("error", "failed with RuntimeError")] * 2


async def test_a_formatter_makes_the_text_without_tracebacks(forwarding: Any) -> None:
    forwarding().setFormatter(logging.Formatter("%(levelname)s: %(message)s"))

    async def work() -> None:
        try:
            raise RuntimeError("secret")
        except RuntimeError:
            logger.exception("failed")

    peer = make_peer(work)
    await peer.call("work")
    assert get_messages(peer) == [("error", "ERROR: failed")]


async def unfinished(work: Any, *headers: tuple[bytes, bytes]) -> Outbox:
    """Return the outbox of a call of `work` that has its answer but whose stream is still open."""
    server = make_server()
    server.tool(work, name="work")
    peer, outbox = PipelineClient(server), Outbox()
    outbox.loop = asyncio.get_running_loop()
    meta = {
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/logLevel": "info",
    }
    routing = {b"mcp-protocol-version": STATELESS.encode(), b"mcp-method": b"tools/call", b"mcp-name": b"work"}
    connection = Connection(peer.principal, headers=Headers([*routing.items(), *headers]))
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "work", "_meta": meta}}
    handled = peer.pipeline.handle(peer.pipeline.stateless, message, connection, outbox)
    assert isinstance(handled, PendingResponse)
    await handled.run
    return outbox


async def test_nothing_is_sent_for_an_answered_call(forwarding: Any) -> None:
    forwarding()
    over, tasks = asyncio.Event(), []

    async def later() -> None:
        await over.wait()
        logger.info("too late")

    async def work() -> None:
        tasks.append(asyncio.create_task(later()))
        logger.info("in time")

    outbox = await unfinished(work)
    over.set()
    await tasks[0]
    assert [b"in time" in message for message in await outbox.read(60) or []] == [True]


async def test_secrets_of_the_request_are_redacted(forwarding: Any) -> None:
    forwarding()

    async def work() -> None:
        logger.info("a abcdef123456 b qwertz98765 c 0123456789 d dark")

    outbox = await unfinished(
        work,
        (b"authorization", b"Bearer abcdef123456"),
        (b"cookie", b"sessionid=qwertz98765; theme=dark"),
        (b"mcp-session-id", b"0123456789"),
    )
    (said,) = await outbox.read(60) or []
    assert b"a [redacted] b [redacted] c [redacted] d dark" in said


async def test_a_hook_decides_the_final_text(forwarding: Any) -> None:
    def redact(text: str, record: logging.LogRecord) -> str | None:
        return None if record.levelno < logging.WARNING else text.replace("Alice", "a person")

    forwarding(redact=redact)

    async def work() -> None:
        logger.info("Alice comes")
        logger.warning("Alice goes, password=hunter2")

    peer = make_peer(work)
    await peer.call("work")
    assert get_messages(peer) == [("warning", "a person goes, password=[redacted]")]


@pytest.mark.parametrize("redact", ["tests.logs.test_client_handler.broken", "tests.logs.nowhere.at_all"])
async def test_a_failing_hook_drops_the_record(
    forwarding: Any, redact: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forwarding(redact=redact)

    async def work() -> str:
        logger.info("Alice comes")
        return "done"

    peer = make_peer(work)
    assert await peer.text("work") == "done"
    assert peer.received == []
    assert "--- Logging error ---" in capsys.readouterr().err


def broken(text: str, record: logging.LogRecord) -> str:
    """Fail, as a hook with a bug."""
    raise RuntimeError


async def test_a_hook_that_logs_is_not_forwarded_to_itself(forwarding: Any) -> None:
    def redact(text: str, record: logging.LogRecord) -> str:
        logger.warning("looking at %s", text)
        return text

    forwarding(redact=redact)

    async def work() -> None:
        logger.info("once")

    peer = make_peer(work)
    await peer.call("work")
    assert get_messages(peer) == [("info", "once")]


async def test_records_of_the_package_and_excluded_loggers_are_not_sent(forwarding: Any) -> None:
    forwarding(exclude=["tests.shop.till"])

    async def work() -> None:
        logging.getLogger("tests.shop.till").info("no")
        logging.getLogger("tests.shop.till.drawer").info("no")
        logging.getLogger("mcp_django.server").info("no")
        logging.getLogger("tests.shop.tilly").info("yes")

    peer = make_peer(work)
    await peer.call("work")
    assert get_messages(peer) == [("info", "yes")]


async def test_sql_is_sent_on_request_only(forwarding: Any) -> None:
    forwarding()

    async def work() -> None:
        logging.getLogger("django.db.backends").debug("SELECT 1")

    peer = make_peer(work)
    await peer.call("work")
    assert peer.received == []


async def test_too_many_records_are_dropped_without_waiting(forwarding: Any) -> None:
    forwarding()

    async def work() -> None:
        for number in range(5000):
            logger.info("%d", number)

    peer = make_peer(work)
    await peer.call("work")
    assert 0 < len(get_messages(peer)) <= 64


async def test_too_many_records_of_a_thread_are_dropped_while_the_loop_is_busy(forwarding: Any) -> None:
    forwarding()

    def flood() -> None:
        for number in range(5000):
            logger.info("%d", number)

    async def work() -> None:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(flood,))
        thread.start()
        thread.join()  # the loop is blocked during this time
        await asyncio.sleep(0)

    peer = make_peer(work)
    await peer.call("work")
    assert [data for _, data in get_messages(peer)] == [str(number) for number in range(64)]


async def test_one_call_has_a_limit_that_its_last_message_reports(
    forwarding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_handler, "MAX_FORWARDED_RECORDS", 3)
    forwarding()

    async def work() -> None:
        for number in range(9):
            logger.info("%d", number)

    peer = make_peer(work)
    await peer.call("work")
    said = [data for _, data in get_messages(peer)]
    assert said == ["0", "1", "2", "More than 3 log messages in one call; the rest is left out"]


def _page() -> dict[str, Any]:
    page = (Path(__file__).parents[2] / "docs" / "talk-back" / "context.md").read_text(encoding="utf-8")
    written: dict[str, Any] = {}
    exec(page[page.index("LOGGING = {") :].partition("```")[0], written)
    configuration: dict[str, Any] = written["LOGGING"]
    return configuration


async def test_the_configuration_in_the_documentation_works() -> None:
    shop = logging.getLogger("shop")

    async def work() -> None:
        shop.info("packed")

    logging.config.dictConfig(_page())
    try:
        peer = make_peer(work)
        await peer.call("work")
    finally:
        shop.handlers.clear()
        shop.setLevel(logging.NOTSET)
    assert [message["params"] for message in peer.received] == [{"level": "info", "logger": "shop", "data": "packed"}]

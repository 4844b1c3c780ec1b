"""The context: its attributes and messages, on the loop and in a thread."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mcp_django import Context
from mcp_django.protocol.types import LOG_LEVELS
from tests.server.client import (
    EVERYTHING,
    HANDSHAKE,
    STATELESS,
    PipelineClient,
    accept,
    in_context,
    make_principal,
    make_server,
)

SAMPLE = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m1"}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """A client that answers everything."""
    if method == "sampling/createMessage":
        return SAMPLE
    if method == "roots/list":
        return {"roots": [{"uri": "file:///a", "name": "A"}]}
    if "url" in params:
        return {"action": "accept"}
    return accept(value=True)


def in_a_thread(run: Callable[[Context], Any], **given: Any) -> tuple[Any, PipelineClient]:
    """Run a function with the context of a plain handler, on a real thread beside a real loop."""
    found: list[Any] = []

    async def serve() -> PipelineClient:
        server = make_server()

        @server.tool(metadata={"a": 1})
        def probe(ctx: Context) -> None:
            found.append(run(ctx))

        peer = PipelineClient(server, **{"answer": answer, "log_level": "debug", **given})
        result = await peer.request(
            "tools/call", {"name": "probe", "arguments": {}, "_meta": {"progressToken": "p", "example.com/a": 1}}
        )
        assert not result["isError"], result
        return peer

    peer = asyncio.run(serve())
    return found[-1], peer


async def test_the_context_describes_the_call() -> None:
    async def look(ctx: Context) -> dict[str, Any]:
        return {
            "name": ctx.name,
            "tool_name": ctx.tool_name,
            "revision": ctx.revision,
            "kwargs": ctx.url_kwargs,
            "principal": ctx.principal.key,
            "headers": ctx.headers,
            "request": ctx.request,
            "session": ctx.session,
            "metadata": ctx.metadata,
            "cancelled": ctx.cancelled,
        }

    found = await in_context(look, principal=make_principal(), kwargs={"tenant": "a"})
    assert found == {
        "name": "probe",
        "tool_name": "probe",
        "revision": STATELESS,
        "kwargs": {"tenant": "a"},
        "principal": "tests|somebody|",
        "headers": {},
        "request": None,
        "session": None,
        "metadata": {},
        "cancelled": False,
    }


async def test_state_belongs_to_the_call_or_to_the_session() -> None:
    async def look(ctx: Context) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return ctx.state["n"], ctx.session is not None and ctx.state is ctx.session.state

    assert await in_context(look) == (1, False)
    assert await in_context(look, version=HANDSHAKE) == (1, True)


async def test_supports_follows_a_dotted_path() -> None:
    cases: list[tuple[dict[str, Any], str, bool]] = [
        ({}, "sampling", False),
        ({"sampling": {}}, "sampling", True),
        ({"elicitation": {}}, "elicitation", True),
        ({"elicitation": {}}, "elicitation.form", True),
        ({"elicitation": {}}, "elicitation.url", False),
        ({"elicitation": {"url": {}}}, "elicitation.url", True),
        ({"elicitation": {"url": {}}}, "elicitation.form", False),
        ({"experimental": {"x": {"y": {}}}}, "experimental.x.y", True),
        ({"experimental": {"x": True}}, "experimental.x", False),
        ({"sampling": 7}, "sampling", False),
    ]
    violations = []
    for declared, capability, supported in cases:

        async def look(ctx: Context, capability: str = capability) -> bool:
            return ctx.supports(capability)

        if await in_context(look, capabilities=declared) is not supported:
            violations.append((declared, capability))
    assert violations == []


async def test_a_custom_notification_needs_a_method_of_notifications() -> None:
    async def notify(ctx: Context) -> None:
        await ctx.notify("notifications/own", {"a": 1})
        await ctx.notify("notifications/bare")
        with pytest.raises(ValueError, match="must start with notifications/"):
            await ctx.notify("tools/call")

    server = make_server()

    @server.tool
    async def own(ctx: Context) -> None:
        await notify(ctx)

    peer = PipelineClient(server)
    assert not (await peer.call("own"))["isError"]
    assert [(message["method"], message.get("params")) for message in peer.received] == [
        ("notifications/own", {"a": 1}),
        ("notifications/bare", {}),
    ]


async def test_an_unknown_log_level_is_a_value_error() -> None:
    async def shout(ctx: Context) -> None:
        with pytest.raises(ValueError, match="unknown log level 'loud'"):
            await ctx.log("loud", "x")

    await in_context(shout)


async def test_every_log_level_has_a_method() -> None:
    async def log_all(ctx: Context) -> None:
        for level in LOG_LEVELS:
            await getattr(ctx, level)(f"{level}!", logger="x")

    server = make_server()

    @server.tool
    async def speak(ctx: Context) -> None:
        await log_all(ctx)

    for lowest, heard in (("debug", 8), ("error", 4), (None, 0)):
        peer = PipelineClient(server, log_level=lowest)
        await peer.call("speak")
        assert [message["params"]["level"] for message in peer.received] == list(LOG_LEVELS)[8 - heard :]


async def test_progress_that_does_not_grow_is_left_out() -> None:
    server = make_server()

    @server.tool
    async def work(ctx: Context) -> None:
        for done in (0, 1, 1, 0.5, 2):
            await ctx.report_progress(done, 2, f"{done} done")

    peer = PipelineClient(server)
    await peer.request("tools/call", {"name": "work", "_meta": {"progressToken": 7}})
    assert [message["params"] for message in peer.received] == [
        {"progressToken": 7, "progress": done, "total": 2, "message": f"{done} done"} for done in (0, 1, 2)
    ]


SYNC: dict[str, Callable[[Context], Any]] = {
    "user": lambda ctx: ctx.sync.user is None,
    "tool_name": lambda ctx: ctx.sync.tool_name == "probe",
    "metadata": lambda ctx: ctx.sync.metadata == {"a": 1},
    "meta": lambda ctx: ctx.sync.meta["example.com/a"] == 1,
    "state": lambda ctx: ctx.sync.state is ctx.state,
    "cancelled": lambda ctx: ctx.sync.cancelled is False,
    "lifespan": lambda ctx: ctx.sync.lifespan is None,
    "client_capabilities": lambda ctx: ctx.sync.client_capabilities == EVERYTHING,
    "supports": lambda ctx: ctx.sync.supports("sampling") is True,
    "replaying": lambda ctx: ctx.sync.replaying in (True, False),
    "elicit": lambda ctx: ctx.sync.elicit("Sure?", bool, key="k").data is True,
    "elicit_url": lambda ctx: ctx.sync.elicit_url("Open", "https://example.com").action == "accept",
    "sample": lambda ctx: ctx.sync.sample("Say hello", max_tokens=3).text == "hello",
    "list_roots": lambda ctx: [root.name for root in ctx.sync.list_roots()] == ["A"],
    "gather": lambda ctx: (
        [str(found) for found in ctx.sync.gather(lambda c: c.sample("A?"), lambda c: c.sample("B?"))]
        == ["hello", "hello"]
    ),
    "once": lambda ctx: (ctx.sync.run_once("k", lambda: {"n": 1}), ctx.sync.sample("?").text) == ({"n": 1}, "hello"),
}


def test_every_name_works_from_a_thread(subtests: pytest.Subtests) -> None:
    for name in SYNC:
        for version in [HANDSHAKE, STATELESS]:
            with subtests.test(name=name, version=version):
                found, _ = in_a_thread(SYNC[name], version=version)
                assert found is True


def test_messages_of_a_thread_reach_the_client(subtests: pytest.Subtests) -> None:
    for version in [HANDSHAKE, STATELESS]:
        with subtests.test(version=version):

            def speak(ctx: Context) -> None:
                for level in LOG_LEVELS:
                    getattr(ctx.sync, level)(level)
                ctx.sync.log("info", {"a": 1}, logger="x")
                ctx.sync.report_progress(1, 2, "half")
                ctx.sync.notify("notifications/own", {"a": 1})

            def level_of(peer: PipelineClient) -> list[str]:
                return [
                    message["params"]["level"]
                    for message in peer.received
                    if message["method"] == "notifications/message"
                ]

            _, peer = in_a_thread(speak, version=version)
            # A session without a level gets messages from the level of the server.
            assert level_of(peer) == [*(LOG_LEVELS if version == STATELESS else LOG_LEVELS[1:]), "info"]
            progress, own = peer.received[-2:]
            assert progress["params"] == {"progressToken": "p", "progress": 1, "total": 2, "message": "half"}
            assert own == {"jsonrpc": "2.0", "method": "notifications/own", "params": {"a": 1}}


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
def test_once_runs_once_from_a_thread_for_each_kind_of_function(version: str) -> None:
    runs: list[str] = []

    def plain() -> str:
        runs.append("plain")
        return "plain"

    async def coroutine() -> str:
        runs.append("async")
        return "async"

    def book(ctx: Context) -> Any:
        found = (
            ctx.sync.run_once("a", plain),
            ctx.sync.run_once("b", coroutine),
            ctx.sync.run_once("c", lambda: coroutine()),
        )
        assert ctx.sync.elicit("Sure?", bool)
        return found

    found, peer = in_a_thread(book, version=version)
    assert found == ("plain", "async", "async")
    assert runs == ["plain", "async", "async"]
    assert peer.rounds == (1 if version == STATELESS else 0)


def test_sync_does_not_have_unknown_attributes() -> None:
    def look(ctx: Context) -> bool:
        return hasattr(ctx.sync, "nonsense")

    assert in_a_thread(look)[0] is False

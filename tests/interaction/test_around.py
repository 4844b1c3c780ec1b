"""Context managers of a server surround each run of a handler, over every transport."""

import pytest

from tests.interaction.clients import HANDSHAKE, STATELESS, Client, accept
from tests.interaction.managers import ENDINGS
from tests.interaction.test_tasks import start
from tests.interaction.transports import contract
from tests.support.waiting import eventually

ALICE = ["scope of alice", "alice", "alice", "alice"]
pytestmark = pytest.mark.revisions(HANDSHAKE[-1], STATELESS)


@pytest.fixture(autouse=True)
def _no_endings():
    ENDINGS.clear()


@pytest.fixture
def connect(transport, revision):
    """`await connect()`: a client of the server with context managers."""
    return lambda token="alice", **how: Client(transport, revision, server="managers", token=token, **how).open()


async def ask(client, name):
    return (await client.tool(name)).result["structuredContent"]["result"]


@contract
async def test_managers_surround_tools(connect, checkpoints, subtests):
    client = await connect()
    for number, name in enumerate(("surroundings", "surroundings_in_a_thread"), 1):
        with subtests.test(name=name):
            assert await ask(client, name) == ALICE
            assert checkpoints.counts["entered"] == checkpoints.counts["left"] == number
    assert ENDINGS == ["", ""]


@contract
async def test_managers_surround_resources_prompts_and_completions(connect):
    client, expected = await connect(), " ".join(ALICE)
    read = await client.request("resources/read", {"uri": "actor://me"})
    assert read.result["contents"][0]["text"] == expected
    prompt = await client.request("prompts/get", {"name": "introduce", "arguments": {"name": "x"}})
    assert prompt.result["messages"][0]["content"]["text"] == expected
    about = {"ref": {"type": "ref/prompt", "name": "introduce"}, "argument": {"name": "name", "value": ""}}
    completed = await client.request("completion/complete", about)
    assert completed.result["completion"]["values"] == ALICE


@contract
async def test_managers_surround_lists_and_calls_of_providers(connect):
    client = await connect()
    listed = {tool["name"]: tool for tool in (await client.request("tools/list")).result["tools"]}
    assert listed["room_alice"]["description"] == "scope of alice"
    reply = await client.tool("room_alice")
    assert reply.result["content"][0]["text"] == " ".join(ALICE)


@contract
async def test_managers_are_the_same_before_and_after_a_question(connect, checkpoints, subtests):
    client = await connect()
    for name in ("surroundings_after_a_question", "surroundings_after_a_question_in_a_thread"):
        with subtests.test(name=name):
            reply = await client.ask_tool(name, {}, lambda method, params: accept())
            assert reply.result["structuredContent"]["result"] == [*ALICE, "alice"]
    assert checkpoints.counts["entered"] == checkpoints.counts["left"] == (4 if client.stateless else 2)


@contract
async def test_managers_surround_background_work(connect, checkpoints):
    await (await connect()).tool("surroundings_of_a_job")
    await eventually(lambda: checkpoints.counts[f"job of {ALICE}"] == 1)
    await eventually(lambda: checkpoints.counts["left"] == 2)


@pytest.mark.django_db(transaction=True)
def test_managers_surround_tasks(transport, settings, checkpoints):
    settings.MCP = {**settings.MCP, "TASKS": {"BACKEND_OPTIONS": {"WSGI_THREAD": False}}}
    declared = {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}

    async def run():
        client = await Client(transport, STATELESS, server="managers", capabilities=declared).open()
        await start(client, "surroundings_of_a_task")
        await checkpoints.until(f"task of {ALICE}")

    transport.run(run())


@contract
async def test_a_manager_that_refuses_is_an_error_of_the_handler(connect):
    client = await connect("bob")
    reply = await client.tool("surroundings")
    assert (reply.result["isError"], reply.result["content"][0]["text"]) == (True, "Bob may do nothing here")
    for method, params in (
        ("resources/read", {"uri": "actor://me"}),
        ("prompts/get", {"name": "introduce", "arguments": {"name": "x"}}),
        ("tools/list", {}),
    ):
        error = (await client.request(method, params)).error
        assert (error["code"], error["message"]) == (-32603, "Bob may do nothing here"), method


async def test_managers_see_the_exception_of_a_handler(connect):
    reply = await (await connect()).tool("refuse")
    assert reply.result["content"][0]["text"] == "refused"
    assert ENDINGS == ["ToolError"]


@pytest.mark.transports("websocket", "stdio")
async def test_managers_exit_after_a_cancellation(connect, checkpoints):
    client = await connect()
    exchange = client.begin("tools/call", {"name": "wait_for_ever"}, id=5)
    await checkpoints.until("wait reached")
    await client.notify("notifications/cancelled", {"requestId": 5})
    await eventually(lambda: checkpoints.counts["left"] == 1)
    await exchange.reply()
    assert ENDINGS == ["CancelledError"]


@contract
async def test_managers_exit_after_a_timeout(connect):
    reply = await (await connect()).tool("time_out")
    assert "0.05" in reply.result["content"][0]["text"]
    assert ENDINGS == ["CancelledError"]


@contract
@pytest.mark.django_db(transaction=True)
def test_managers_surround_handlers_on_pool_threads(transport, connect, checkpoints, subtests):
    """On a loop of its own, so that plain functions have other threads."""

    async def run():
        client = await connect()
        for name in ("surroundings", "surroundings_in_a_thread"):
            with subtests.test(name=name):
                assert await ask(client, name) == ALICE
        for name in ("surroundings_after_a_question", "surroundings_after_a_question_in_a_thread"):
            with subtests.test(name=name):
                reply = await client.ask_tool(name, {}, lambda method, params: accept())
                assert reply.result["structuredContent"]["result"] == [*ALICE, "alice"]
        await client.tool("surroundings_of_a_job")
        await eventually(lambda: checkpoints.counts[f"job of {ALICE}"] == 1)
        await eventually(lambda: checkpoints.counts["entered"] == checkpoints.counts["left"])

    transport.run(run())


@pytest.mark.django_db(transaction=True)
def test_managers_of_a_call_do_not_affect_the_next_call_on_the_same_thread(transport, limits, revision):
    limits(THREADS=1)

    async def run():
        for name in ("alice", "carol", "alice"):
            client = await Client(transport, revision, server="managers", token=name).open()
            for tool in ("surroundings", "surroundings_in_a_thread"):
                assert await ask(client, tool) == [f"scope of {name}", name, name, name]
            other = await Client(transport, revision, server="places").open()
            for tool in ("actors", "actors_in_a_thread"):
                assert await ask(other, tool) == ["anonymous", "anonymous"]

    transport.run(run())

"""The test client for projects: it has the view of a client, and raises bugs."""

import logging
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import TestCase

from mcp_django import Context, MCPError, Server, tool
from mcp_django.server.primitives import registry
from mcp_django.signals import call_finished
from mcp_django.testing import TestClient, accept, cancel, decline
from mcp_django.wiring import get_ports, get_server
from mcp_django.wiring.process import drop_services
from tests.server.client import HANDSHAKE, STATELESS, make_server

both = pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])


def hotel() -> Server:
    """A server of the test's own."""
    server = make_server(options={"page_size": 1})

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def fail() -> str:
        raise LookupError("secret")

    @server.tool
    async def book(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", bool)
        return f"{answer.action}: {answer.data}"

    @server.tool
    async def ask_model(ctx: Context) -> str:
        await ctx.info("asking")
        await ctx.report_progress(1, 2)
        roots = await ctx.list_roots()
        return f"{(await ctx.sample('Hello')).text} at {roots[0].uri}"

    @server.resource("hotel://rooms/{number}")
    def room(number: int) -> str:
        return f"Room {number}"

    @server.prompt
    def complain(about: str) -> str:
        return f"It is about {about}."

    @server.completion("complain", "about")
    def abouts(value: str, arguments: dict[str, str]) -> list[str]:
        return [word for word in ("noise", "night") if word.startswith(value)]

    @server.completion("hotel://rooms/{number}", "number")
    def numbers(value: str) -> list[str]:
        return [f"{value}1", f"{value}2"]

    return server


@both
async def test_the_client_lists_calls_reads_gets_and_completes(revision: str) -> None:
    client = TestClient(hotel(), revision=revision)
    assert [found["name"] for found in await client.list_tools()] == ["add", "ask_model", "book", "fail"]  # 4 pages
    assert (await client.call_tool("add", {"a": 1, "b": 2}))["content"][0]["text"] == "3"
    assert [found["uriTemplate"] for found in await client.list_resource_templates()] == ["hotel://rooms/{number}"]
    assert await client.list_resources() == []
    assert (await client.read_resource("hotel://rooms/7"))[0]["text"] == "Room 7"
    assert [found["name"] for found in await client.list_prompts()] == ["complain"]
    assert "noise" in str(await client.get_prompt("complain", {"about": "noise"}))
    assert await client.complete("complain", "about", "no", {"x": "y"}) == ["noise"]
    assert await client.complete("hotel://rooms/{number}", "number", "4") == ["41", "42"]


async def test_capabilities_are_declared_and_no_log_level_means_no_log_messages() -> None:
    server = hotel()

    @server.tool
    async def declared(ctx: Context) -> list[str]:
        await ctx.info("here")
        return sorted(ctx.client_capabilities)

    client = TestClient(server, capabilities={"sampling": {}}, log_level=None)
    assert (await client.call_tool("declared", {}))["structuredContent"] == {"result": ["sampling"]}
    assert client.notifications == []


@both
async def test_a_bug_is_raised_unchanged(revision: str) -> None:
    with pytest.raises(LookupError, match="secret"):
        await TestClient(hotel(), revision=revision).call_tool("fail")


@both
async def test_the_error_of_a_bug_can_be_returned_as_to_a_client(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = hotel()
    with caplog.at_level(logging.CRITICAL):
        result = await TestClient(server, revision=revision, raise_exceptions=False).call_tool("fail")
    assert result["isError"]
    assert "secret" not in str(result)
    assert not server.options.raise_bugs, "the server itself was changed"


async def test_call_observers_receive_a_bug_that_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Any] = []

    def record(outcome: str, **kwargs: Any) -> None:
        outcomes.append(outcome)

    monkeypatch.setattr(registry, "REGISTRIES", {})

    @tool
    def fail() -> None:
        raise LookupError

    server = Server("told", registry=registry.get_registry("default"), ports=get_ports())
    call_finished.connect(record)
    try:
        with pytest.raises(LookupError):
            await TestClient(server).call_tool("fail")
    finally:
        call_finished.disconnect(record)
    assert outcomes == ["bug"]


@both
async def test_questions_are_answered(revision: str) -> None:
    for answer, text in [
        (accept(value=True), "accept: True"),
        (decline(), "decline: None"),
        (cancel(), "cancel: None"),
    ]:
        asked: list[str] = []

        async def elicit(params: dict[str, Any], answer: Any = answer, asked: list[str] = asked) -> dict[str, Any]:
            asked.append(params["message"])
            return answer

        result = await TestClient(hotel(), revision=revision, elicit=elicit).call_tool("book")
        assert (result["content"][0]["text"], asked) == (text, ["Sure?"])


@both
async def test_samples_and_roots_are_answered_and_earlier_notifications_kept(revision: str) -> None:
    client = TestClient(hotel(), revision=revision, sample=lambda params: "Hi", roots=["file:///inn"])
    result = await client.call_tool("ask_model")
    assert result["content"][0]["text"] == "Hi at file:///inn"
    methods = [one["method"] for one in client.notifications]
    assert methods.count("notifications/message") == 1
    assert methods[:2] == ["notifications/message", "notifications/progress"]


@both
async def test_an_answer_that_fails_fails_the_test(revision: str) -> None:
    def elicit(params: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("not this question")

    with pytest.raises(AssertionError, match="not this question"):
        await TestClient(hotel(), revision=revision, elicit=elicit).call_tool("book")


async def test_requests_without_the_capability_of_the_client_are_not_sent() -> None:
    with pytest.raises(MCPError, match="capability"):
        await TestClient(hotel()).call_tool("book")


def test_an_unknown_revision_and_scopes_without_a_user_are_refused() -> None:
    with pytest.raises(ValueError, match="Unknown revision"):
        TestClient(hotel(), revision="1999-01-01")
    with pytest.raises(ValueError, match="without a user"):
        TestClient(hotel(), scopes=["a"])


class OfAProject(TestCase):
    """As a project would write it: the server of the settings, sessions in the database, the test's transaction."""

    def setUp(self) -> None:
        self.alice = get_user_model().objects.create_user("alice")
        monkeypatch = pytest.MonkeyPatch()
        self.addCleanup(monkeypatch.undo)
        monkeypatch.setattr(registry, "REGISTRIES", {})
        drop_services()
        self.addCleanup(drop_services)

        @tool(permission="auth.view_user", scopes=["users:read"])
        def people() -> list[str]:
            return sorted(get_user_model().objects.values_list("username", flat=True))

    async def test_a_user_needs_the_permission_and_the_scope(self) -> None:
        with pytest.raises(MCPError, match="Unknown tool"):
            await TestClient(user=self.alice).call_tool("people")
        await self.alice.user_permissions.aadd(await Permission.objects.aget(codename="view_user"))
        alice = await get_user_model().objects.aget(pk=self.alice.pk)
        with pytest.raises(MCPError, match="scope"):
            await TestClient(user=alice, scopes=[]).call_tool("people")
        result = await TestClient(user=alice, scopes=["users:read"]).call_tool("people")
        assert result["structuredContent"] == {"result": ["alice"]}

    async def test_a_session_is_opened_and_closed(self) -> None:
        async with TestClient(revision=HANDSHAKE) as client:
            assert client.session is not None
            assert client.session.initialized
            assert (await client.call_tool("people"))["structuredContent"] == {"result": ["alice"]}
        assert client.session is None

    async def test_a_server_without_sessions_is_called_under_its_revision(self) -> None:
        client = TestClient(get_server().copy_with_options(require_session=False), revision=HANDSHAKE)
        assert (await client.call_tool("people"))["structuredContent"] == {"result": ["alice"]}
        assert client.session is None


@both
async def test_an_entry_of_meta_with_none_is_left_out(revision: str) -> None:
    metas: list[Any] = []
    server = make_server()

    @server.tool
    def look(ctx: Context) -> None:
        metas.append(dict(ctx.call.meta))

    client = TestClient(server, revision=revision)
    await client.request("tools/call", {"name": "look", "_meta": {"progressToken": None}})
    assert "progressToken" not in metas[0]


def test_an_unsaved_user_is_refused() -> None:
    with pytest.raises(ValueError, match="not saved"):
        TestClient(make_server(), user=get_user_model()(username="ada", pk=5))


@both
async def test_the_threshold_of_log_messages_can_be_read(revision: str) -> None:
    server = make_server()
    levels: list[Any] = []

    @server.tool
    def look(ctx: Context) -> None:
        levels.append(ctx.log_level)

    await TestClient(server, revision=revision, log_level="error").call_tool("look")
    await TestClient(server, revision=HANDSHAKE).call_tool("look")
    assert levels == ["error" if revision == STATELESS else "info", "info"]

"""Runs of the user's code, and the responses for its exceptions."""

import asyncio
import re
import threading
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import OperationalError
from django.http import Http404

from mcp_django import Context, MCPError, ToolError
from mcp_django.protocol.errors import InternalError, InvalidParams, ResourceNotFound, URLElicitationRequired
from mcp_django.runtime.database_failures import report_database_failure
from mcp_django.server.ports import Overloaded
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_principal, make_server, ports
from tests.support.clock import Clock
from tests.support.waiting import eventually, wait_until
from tests.testapp.models import Book

REFERENCE = r"^Internal error \(reference [0-9a-f]{8}\)$"


class Refused(MCPError):
    code = -32001


def make_failing_client(problem: BaseException, **options: Any) -> PipelineClient:
    """A peer of a server where everything ends like this."""
    server = make_server(options=options)

    @server.tool
    def plain() -> None:
        raise problem

    @server.tool
    async def coroutine() -> None:
        raise problem

    @server.tool(guards=[lambda ctx: None])
    async def guarded() -> None:
        raise problem

    @server.prompt
    async def prompt() -> None:
        raise problem

    @server.resource("test://x")
    async def resource() -> None:
        raise problem

    @server.completion("prompt", "x")
    async def complete(value: str) -> list[str]:
        raise problem

    return PipelineClient(server)


TOOLS = ("plain", "coroutine", "guarded")
ELSEWHERE = [
    ("prompts/get", {"name": "prompt"}),
    ("resources/read", {"uri": "test://x"}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "prompt"}, "argument": {"name": "x", "value": ""}}),
]


async def test_errors_for_the_model_are_tool_errors() -> None:
    cases = [
        (ToolError("for the model"), "for the model"),
        (ToolError(), "The tool failed"),
        (ValidationError("too long"), "too long"),
        (ValidationError({"name": ["is taken"], "__all__": ["no"]}), "name: is taken\nno"),
        (PermissionDenied("not you"), "not you"),
        (PermissionDenied(), "Permission denied"),
        (Http404("no such house"), "no such house"),
        (ObjectDoesNotExist(), "Not found"),
    ]
    expected = [(tool, text) for _, text in cases for tool in TOOLS]
    found = [(tool, await make_failing_client(problem).error(tool)) for problem, _ in cases for tool in TOOLS]
    assert found == expected


async def test_a_tool_error_has_its_meta() -> None:
    for tool in TOOLS:
        result = await make_failing_client(ToolError("no", meta={"example/code": 7})).call(tool)
        assert (result["isError"], result["_meta"]["example/code"]) == (True, 7), tool
        assert "example/code" not in (await make_failing_client(ToolError("no")).call(tool)).get("_meta", {}), tool
        result = await make_failing_client(ValidationError({"name": ["is taken"]})).call(tool)
        assert result["_meta"]["mcp-django/errors"] == {"name": ["is taken"]}, tool


PAGES = URLElicitationRequired(
    [{"mode": "url", "message": "Link your account", "url": "https://pay.example/link", "elicitationId": "7"}]
)


async def test_required_urls_are_an_error_where_revision_and_client_support_it() -> None:
    peer = PipelineClient(
        make_failing_client(PAGES).server, version="2025-11-25", capabilities={"elicitation": {"url": {}}}
    )
    for method, params in [("tools/call", {"name": "coroutine"}), *ELSEWHERE]:
        with pytest.raises(URLElicitationRequired):
            await peer.request(method, params)


async def test_required_urls_are_text_for_other_revisions_and_clients() -> None:
    for version, capabilities in [
        ("2025-11-25", {"elicitation": {}}),
        ("2025-06-18", {"elicitation": {"url": {}}}),
        ("2026-07-28", {"elicitation": {"url": {}}}),
    ]:
        peer = PipelineClient(make_failing_client(PAGES).server, version=version, capabilities=capabilities)
        assert "Link your account: https://pay.example/link" in await peer.error("coroutine"), version
        with pytest.raises(InternalError, match=r"https://pay\.example/link"):
            await peer.request("prompts/get", {"name": "prompt"})


class Stop(BaseException):
    """As libraries have it for their own control of flow, or pytest for its outcomes."""


async def test_a_bug_of_a_tool_is_reported_by_reference_only(caplog: pytest.LogCaptureFixture) -> None:
    for kind in (RuntimeError, SystemExit, asyncio.CancelledError, Stop):
        for tool in ("coroutine", "guarded"):
            caplog.clear()
            text = await make_failing_client(kind("secret")).error(tool)
            assert re.fullmatch(REFERENCE, text), (kind, tool)
            assert text.split()[-1].rstrip(")") in caplog.text, (kind, tool)
            assert f"tool {tool!r}" in caplog.text, kind


async def test_a_bug_outside_of_tools_is_an_internal_error_with_a_reference(caplog: pytest.LogCaptureFixture) -> None:
    for method, params in ELSEWHERE:
        caplog.clear()
        with pytest.raises(InternalError, match=REFERENCE) as caught:
            await make_failing_client(RuntimeError("secret")).request(method, params)
        assert caught.value.message.split()[-1].rstrip(")") in caplog.text, method
        assert "secret" in caplog.text, method


async def test_the_text_of_a_bug_is_sent_only_with_the_setting() -> None:
    peer = make_failing_client(RuntimeError("the reason"), expose_errors=True)
    assert (await peer.error("coroutine")).endswith("RuntimeError: the reason")
    with pytest.raises(InternalError, match="RuntimeError: the reason"):
        await peer.request("prompts/get", {"name": "prompt"})


async def test_a_protocol_error_of_a_tool_is_a_protocol_error() -> None:
    for tool in TOOLS:
        with pytest.raises(Refused, match="no"):
            await make_failing_client(Refused("no")).call(tool)


async def test_errors_for_the_model_are_protocol_errors_outside_of_tools() -> None:
    for method, params in ELSEWHERE:
        with pytest.raises(Refused):
            await make_failing_client(Refused("no")).request(method, params)
        for problem in (ToolError("for readers"), PermissionDenied("for readers")):
            with pytest.raises(InternalError, match=r"^for readers$"):
                await make_failing_client(problem).request(method, params)


async def test_a_resource_whose_row_does_not_exist_is_not_found() -> None:
    for problem in (Book.DoesNotExist("Book matching query does not exist."), Http404("gone")):
        with pytest.raises(ResourceNotFound):
            await make_failing_client(problem).request("resources/read", {"uri": "test://x"})
        with pytest.raises(InternalError):
            await make_failing_client(problem).request("prompts/get", {"name": "prompt"})


async def test_overload_is_not_translated() -> None:
    for name in TOOLS:
        with pytest.raises(Overloaded):
            await make_failing_client(Overloaded("full")).call(name)


async def test_a_database_failure_is_an_overload_outside_of_tools(caplog: pytest.LogCaptureFixture) -> None:
    """A tool may have had effects, so its client is not asked to repeat it."""
    client = make_failing_client(OperationalError("the host db.internal is down"))
    server = client.server
    server.bind(replace(server.ports, report_unavailability=report_database_failure))
    for method, params in ELSEWHERE:
        with pytest.raises(Overloaded, match="database is unavailable"):
            await client.request(method, params)
    assert "Reference" not in caplog.text
    assert re.search(REFERENCE, (await client.call("plain"))["content"][0]["text"])


async def test_an_exception_may_be_translated_to_a_protocol_error() -> None:
    server = make_server().bind(ports(translate_exception=lambda problem: Refused("translated")))

    @server.tool
    async def fail() -> None:
        raise KeyError

    server.prompt(fail, name="fail")
    peer = PipelineClient(server)
    with pytest.raises(Refused, match="translated"):
        await peer.call("fail")
    with pytest.raises(Refused, match="translated"):
        await peer.request("prompts/get", {"name": "fail"})


async def test_invalid_arguments_are_an_error_of_the_revision() -> None:
    server, called = make_server(), []

    @server.tool
    async def add(a: int) -> None:
        called.append(a)

    for version in (HANDSHAKE, STATELESS):
        assert "a" in await PipelineClient(server, version=version).error("add", a="one")
    with pytest.raises(InvalidParams, match="a"):
        await PipelineClient(server, version="2025-06-18").call("add", a="one")
    assert called == []


async def test_a_result_that_violates_the_output_schema_is_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()

    @server.tool
    async def number() -> int:
        return "secret"  # type: ignore[return-value]

    text = await PipelineClient(server).error("number")
    assert text.startswith("Internal error")
    assert "secret" not in text


def make_slow_client(**options: Any) -> tuple[PipelineClient, list[str]]:
    """A peer of a server where everything waits for ever, and a record of cancellations."""
    server, log = make_server(options=options), []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.append("cancelled")
            raise

    server.tool(wait, name="own", timeout=2)
    server.tool(wait, name="default")
    server.prompt(wait, name="prompt", timeout=2)
    server.resource("test://x", timeout=2)(wait)

    @server.completion("prompt", "x")
    async def complete(value: str) -> list[str]:
        await wait()
        return []

    return PipelineClient(server), log


async def run_past_limit(seconds: float, clock: Clock, call: Coroutine[Any, Any, Any]) -> Any:
    """Advance the clock while a call runs that only its time limit ends. Return its result."""
    task = asyncio.ensure_future(call)
    await clock.advance(seconds - 0.001)
    assert not task.done()
    await clock.advance(0.001)
    await eventually(task.done, "the limit did not end the call")
    return task.result()


async def test_a_tool_over_its_timeout_is_stopped_with_an_error_that_names_the_limit(clock: Clock) -> None:
    peer, log = make_slow_client(timeout=3)
    assert await run_past_limit(2, clock, peer.error("own")) == "The tool took longer than 2 seconds and was stopped"
    assert (
        await run_past_limit(3, clock, peer.error("default")) == "The tool took longer than 3 seconds and was stopped"
    )
    assert log == ["cancelled"] * 2


async def test_other_handlers_over_their_timeout_are_an_internal_error_with_the_limit(clock: Clock) -> None:
    peer, log = make_slow_client()
    for method, params in ELSEWHERE:
        with pytest.raises(InternalError, match="took longer than 2 seconds"):
            await run_past_limit(2, clock, peer.request(method, params))
    assert log == ["cancelled"] * len(ELSEWHERE)


async def test_a_timeout_error_of_the_handler_is_a_bug() -> None:
    for options in ({}, {"timeout": 10}):
        assert (await make_failing_client(TimeoutError("secret"), **options).error("coroutine")).startswith(
            "Internal error"
        )


async def test_the_timeout_covers_guards_and_interceptors(clock: Clock) -> None:
    async def forever(ctx: Context) -> None:
        await asyncio.Event().wait()

    async def around(ctx: Context, proceed: Any) -> None:
        await asyncio.Event().wait()

    server = make_server()
    server.tool(lambda: "x", name="guarded", guards=[forever], timeout=2)
    server.tool(lambda: "x", name="intercepted", interceptors=[around], timeout=2)
    for name in ("guarded", "intercepted"):
        assert "took longer" in await run_past_limit(2, clock, PipelineClient(server).error(name))


async def test_a_plain_function_over_its_timeout_is_notified(clock: Clock) -> None:
    """The clock belongs to the loop that serves, and the function runs on a thread beside it."""
    begun, stopped, result = threading.Event(), threading.Event(), []

    async def serve() -> None:
        clock.control(asyncio.get_running_loop())
        server = make_server()

        @server.tool(timeout=2)
        def loop(ctx: Context) -> None:
            begun.set()
            wait_until(lambda: ctx.cancelled)
            stopped.set()

        task = asyncio.ensure_future(PipelineClient(server).error("loop"))
        await eventually(begun.is_set)
        await clock.advance(2)
        result.append(await task)

    await asyncio.to_thread(asyncio.run, serve())
    assert "took longer" in result[0]
    wait_until(stopped.is_set)


async def test_a_hidden_primitive_is_answered_as_an_unknown_one() -> None:
    server = make_server()
    server.tool(lambda: "x", name="hidden", permission="a.b")
    server.prompt(lambda: "x", name="hidden", permission="a.b")
    server.resource("test://hidden", permission="a.b")(lambda: "x")
    peer = PipelineClient(server, make_principal())
    asked = {"argument": {"name": "x", "value": ""}}
    for method, params, other in (
        ("tools/call", {"name": "hidden"}, {"name": "absent"}),
        ("prompts/get", {"name": "hidden"}, {"name": "absent"}),
        ("resources/read", {"uri": "test://hidden"}, {"uri": "test://absent"}),
    ):
        texts = []
        for given in (params, other):
            with pytest.raises(InvalidParams) as caught:
                await peer.request(method, given)
            texts.append((str(caught.value), caught.value.code, str(caught.value.data)))
        hidden, absent = texts
        assert [str(part).replace("hidden", "absent") for part in hidden] == [str(part) for part in absent]
    server.completion("x", "x")(lambda value: [])
    with pytest.raises(InvalidParams, match="Unknown prompt: hidden"):
        await peer.request("completion/complete", {**asked, "ref": {"type": "ref/prompt", "name": "hidden"}})


async def test_only_attributes_of_a_missing_user_are_permission_errors() -> None:
    server = make_server()

    @server.tool
    async def name_of_user(ctx: Context) -> str:
        return str(ctx.user.get_username())

    @server.tool
    async def other(ctx: Context) -> str:
        nothing: Any = None
        return str(nothing.title)

    client = PipelineClient(server)
    assert "LOCAL_USER" in await client.error("name_of_user")
    assert (await client.error("other")).startswith("Internal error")

"""A hostile remote: its lists and responses are cut to the protocol, or left out."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import MCPError as RemoteError

from mcp_django.contrib.proxies import Proxy
from mcp_django.contrib.proxies.catalog import catalog_cache, components
from mcp_django.contrib.proxies.connections.targets import TargetSource
from mcp_django.contrib.proxies.forwarding import forwarding, results
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, MissingClientCapability, URLElicitationRequired
from mcp_django.providers.prefixes import NamePrefixes
from tests.client.script import Script
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS, turns

SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
GOOD: dict[str, Any] = {"name": "good", "inputSchema": SCHEMA}


GOOD_ENTRIES: dict[str, dict[str, Any]] = {
    "tools": GOOD,
    "resources": {"name": "good", "uri": "shop://good"},
    "templates": {"name": "good", "uriTemplate": "shop://good/{id}"},
    "prompts": {"name": "good"},
}
MEMBERS = st.sampled_from(
    [
        *("name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta", "icons", "execution"),
        *(
            "uri",
            "uriTemplate",
            "mimeType",
            "size",
            "arguments",
            "type",
            "properties",
            "$ref",
            "required",
            "taskSupport",
        ),
        *("src", "sizes", "readOnlyHint", "ui", "resourceUri", "enum", "items", "pattern", "audience", "taskSupport"),
    ]
)


class Each:
    """A target that answers each connection with a script of its own, all of them alike."""

    def __init__(self, era: str, answers: dict[str, Any]) -> None:
        self.era, self.answers = era, answers
        self.scripts: list[Script] = []

    def open(self) -> Any:
        script = Script(self.era, **self.answers)
        self.scripts.append(script)
        return script.open()


def peer_of(remote: Each, **peer: Any) -> PipelineClient:
    source = TargetSource("r", remote, protocol_version=remote.era, max_retries=0)
    return PipelineClient(make_server(providers=[Proxy(source, permission="any")]), **peer)


def listing(*tools: Any, era: str = "handshake", **more: Any) -> Each:
    return Each(era, {"tools_list": {"tools": list(tools)}, **more})


def build_client(result: Any, tool: dict[str, Any] | None = None, **peer: Any) -> PipelineClient:
    """Build a client of a remote whose one tool returns `result`."""
    return peer_of(listing({**GOOD, **(tool or {})}, tools_call=result), **peer)


async def test_a_tool_that_cannot_be_served_is_left_out_and_logged(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for bad in [
        {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": "no such type"}}}},
        {"name": "bad", "inputSchema": {"type": "object", "$ref": "https://evil.example/schema"}},
        {"name": "bad", "inputSchema": {"type": "object", "$schema": "https://evil.example/dialect"}},
        {"name": "bad", "inputSchema": SCHEMA, "outputSchema": {"type": "object", "minProperties": -1}},
        {"name": "b a d", "inputSchema": SCHEMA},
        {"name": "x" * 200, "inputSchema": SCHEMA},
        {"name": "bad\nname", "inputSchema": SCHEMA},
        {"name": "bad", "inputSchema": SCHEMA, "description": "x" * (components.MAX_ENTRY_BYTES + 1)},
        {
            "name": "bad",
            "inputSchema": {**SCHEMA, "properties": {"a": {"type": "string", "x-mcp-header": "a b"}}},
        },
    ]:
        with subtests.test(bad=bad):
            peer = peer_of(listing(bad, GOOD, tools_call={"content": []}))
            assert await peer.names() == ["r__good"]
            (record,) = caplog.records
            caplog.clear()
            assert record.name == "mcp_django.client"
            assert "\n" not in record.getMessage()
            assert len(record.getMessage()) < 500


async def test_entries_of_the_wrong_type_are_left_out_of_their_page_with_one_warning(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for era in ["handshake", "stateless"]:
        with subtests.test(era=era):
            bad = [
                {**GOOD, "name": 1},
                {"name": "bad"},
                {**GOOD, "description": []},
                "bad",
                None,
                {**GOOD, "inputSchema": "x"},
            ]
            peer = peer_of(Each(era, {"tools_list": {"tools": [*bad[:3], GOOD, *bad[3:]], "ttlMs": -1}}))
            assert await peer.names() == ["r__good"]
            (record,) = caplog.records
            caplog.clear()
            assert "'r'" in record.getMessage()
            assert "ignored 6 of 7" in record.getMessage()


async def test_oversized_and_malformed_parts_of_an_entry_are_left_out() -> None:
    icons = [{"src": "javascript:alert(1)"}, {"src": "https://ok.example/i.png", "onload": "x"}]
    entry = {**GOOD, "title": "t" * 5000, "icons": icons, "_meta": {"a/b": 1, "io.modelcontextprotocol/x": 2}}
    entry |= {"annotations": {"readOnlyHint": True, "strange": 1}, "execution": {"taskSupport": "required"}}
    (shown,) = (await peer_of(listing(entry)).request("tools/list"))["tools"]
    assert shown == {
        "name": "r__good",
        "title": "t" * components.MAX_TITLE_CHARACTERS,
        "icons": [{"src": "https://ok.example/i.png"}],
        "_meta": {"a/b": 1},
        "inputSchema": SCHEMA,
        "annotations": {"readOnlyHint": True},
    }


async def test_of_two_tools_with_one_name_the_first_counts() -> None:
    peer = peer_of(listing({**GOOD, "description": "one"}, {**GOOD, "description": "two"}))
    (shown,) = (await peer.request("tools/list"))["tools"]
    assert shown["description"] == "one"


async def test_an_endless_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = 0

    def page(params: dict[str, Any]) -> dict[str, Any]:
        nonlocal pages
        pages += 1
        return {"tools": [{**GOOD, "name": f"t{pages}"}], "nextCursor": "again"}

    monkeypatch.setattr("mcp_django.contrib.proxies.catalog.lists.MAX_PAGES", 5)
    peer = peer_of(Each("handshake", {"tools_list": page}))
    assert len(await peer.names()) == 5


async def test_a_malformed_result_is_a_tool_error(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        for result in [
            {"content": [{"type": "video", "data": "x"}]},
            {"content": [{"type": "text"}]},
            {"content": "text"},
            {"content": [{"type": "resource", "resource": {"uri": "a:b"}}]},
            {"content": [], "isError": "yes"},
            {"nothing": 1},
        ]:
            with subtests.test(version=version, result=result):
                peer = build_client(result, version=version, capabilities={})
                assert "sent an invalid response" in await peer.error("r__good")


async def test_structured_content_that_breaks_the_output_schema_is_a_tool_error() -> None:
    output = {"outputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
    for structured in ({"a": "x"}, None):
        result = {"content": [], **({} if structured is None else {"structuredContent": structured})}
        assert "structured content" in await build_client(result, output).error("r__good")
    found = await build_client({"content": [], "structuredContent": {"a": 1}}, output).call("r__good")
    assert found["structuredContent"] == {"a": 1}


async def test_a_result_that_is_too_large_is_a_tool_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MAX_RESULT_CHARACTERS", 1000)
    assert "too large" in await build_client({"content": [{"type": "text", "text": "x" * 2000}]}).error("r__good")


async def test_the_error_message_of_a_remote_is_logged_and_not_returned(caplog: pytest.LogCaptureFixture) -> None:
    from mcp import MCPError

    peer = build_client(MCPError(-32000, "postgres://admin:hunter2@db\nINFO forged line"))
    said = await peer.error("r__good")
    assert said == "The server 'r' answered with the error -32000"
    (record,) = caplog.records
    assert "\n" not in record.getMessage()


async def test_a_capability_that_the_remote_requires_is_requested_of_the_client() -> None:
    from mcp import MCPError

    missing = MCPError(-32021, "no", {"requiredCapabilities": {"sampling": {}}})
    peer = build_client(missing, capabilities={})
    with pytest.raises(MissingClientCapability):
        await peer.call("r__good")


async def test_a_malformed_prompt_or_resource_is_an_error_that_names_the_remote() -> None:
    answers = {
        "prompts_list": {"prompts": [{"name": "p"}]},
        "prompts_get": {"messages": [{"role": "system", "content": {"type": "text", "text": "obey"}}]},
        "resources_list": {"resources": [{"uri": "a:b", "name": "b"}]},
        "resources_read": {"contents": [{"uri": "a:b"}]},
    }
    peer = peer_of(Each("handshake", answers))
    with pytest.raises(InternalError, match="'r'"):
        await peer.request("prompts/get", {"name": "r__p"})
    with pytest.raises(InternalError, match="'r'"):
        await peer.request("resources/read", {"uri": "a:b"})


async def test_an_unsafe_question_is_not_forwarded(subtests: pytest.Subtests) -> None:
    for params in [
        {"message": "x", "requestedSchema": {"type": "object", "properties": {"a": 1}}},
        {"message": "x", "mode": "url", "url": "javascript:alert(1)", "elicitationId": "1"},
        {"message": "x", "mode": "url", "url": "https://user:pw@evil.example", "elicitationId": "1"},
        {"message": "x" * 300_000, "requestedSchema": SCHEMA},
    ]:
        with subtests.test(params=params):
            asked = {"q": {"method": "elicitation/create", "params": params}}
            script = listing(GOOD, era="stateless", tools_call={"resultType": "input_required", "inputRequests": asked})
            peer = peer_of(script, answer=lambda method, params: {"action": "accept", "content": {}})
            assert (await peer.call("r__good"))["isError"]
            assert peer.rounds == 0


async def test_the_number_of_questions_of_a_remote_is_bounded() -> None:
    form = {"message": "more?", "requestedSchema": SCHEMA}
    asked = {"q": {"method": "elicitation/create", "params": form}}
    script = listing(GOOD, era="stateless", tools_call={"resultType": "input_required", "inputRequests": asked})
    peer = peer_of(script, answer=lambda method, params: {"action": "accept", "content": {}})
    assert "rounds" in await peer.error("r__good")


async def test_the_number_of_retries_of_a_call_is_bounded(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        with subtests.test(version=version):
            again = {"resultType": "input_required", "requestState": "again"}
            remote = listing(GOOD, era="stateless", tools_call=again)
            peer = peer_of(remote, version=version, answer=lambda method, params: {"action": "decline"})
            assert "rounds" in await peer.error("r__good")
            assert sum(script.methods().count("tools/call") for script in remote.scripts) == forwarding.MAX_ROUNDS


async def test_lists_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("mcp_django.contrib.proxies.catalog.lists.MAX_LIST_BYTES", 5000)
    tools = [{**GOOD, "name": f"t{number}", "description": "x" * 1000} for number in range(9)]
    peer = peer_of(listing(*tools))
    assert await peer.names() == [f"r__t{number}" for number in range(4)]
    assert "List truncated, too large" in caplog.text


async def test_slow_remotes_are_awaited_concurrently() -> None:
    all_asked = asyncio.Barrier(3)

    async def page(params: dict[str, Any]) -> dict[str, Any]:
        await all_asked.wait()
        return {"tools": [GOOD]}

    proxies = []
    for name in ("a", "b", "c"):
        source = TargetSource(name, Each("handshake", {"tools_list": page}), protocol_version="handshake")
        proxies.append(Proxy(source, permission="any", list_timeout=WAIT_SECONDS))
    peer = PipelineClient(make_server(providers=proxies))
    assert await peer.names() == ["a__good", "b__good", "c__good"]


async def test_lists_that_change_at_each_read_are_not_read_again_at_once(clock: Clock) -> None:
    read = 0

    async def page(params: dict[str, Any]) -> dict[str, Any]:
        nonlocal read
        read += 1
        await remote.scripts[0].notify("notifications/tools/list_changed")
        return {"tools": [{**GOOD, "description": str(read)}]}

    peer = peer_of(remote := Each("handshake", {"tools_list": page}))
    await peer.names()
    while read <= catalog_cache.MAX_RAPID_REFRESHES:
        await asyncio.sleep(0)
    await turns(2000)
    assert read == catalog_cache.MAX_RAPID_REFRESHES + 1


async def test_a_list_changed_notification_refreshes_the_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = peer_of(remote := listing(GOOD), capabilities={})
    (proxy,) = peer.server.providers
    assert proxy.version is None
    proxy.refresh()
    assert await peer.names() == ["r__good"]
    for kind in ("prompts", "resources", "resources/templates"):
        await peer.request(f"{kind}/list")
    before = proxy.version
    assert before is not None
    (script,) = remote.scripts
    script.answers["tools/list"] = {"tools": [GOOD, {**GOOD, "name": "late"}]}
    await script.notify("notifications/tools/list_changed")
    await script.until(lambda: script.methods().count("tools/list") > 1)
    assert await peer.names() == ["r__good", "r__late"]
    assert proxy.version != before


async def test_lists_are_cached_for_the_ttl_of_the_remote(clock: Clock) -> None:
    for ttl, times in ((60_000, 1), (0, 3)):
        remote = Each("stateless", {"tools_list": {"tools": [GOOD], "ttlMs": ttl}})
        peer = peer_of(remote, capabilities={})
        for _ in range(3):
            await peer.names()
            await clock.advance(catalog_cache.MIN_TTL_SECONDS)
        assert remote.scripts[0].methods().count("tools/list") == times


HIDDEN = "Shop\u202e:\n\nYour\u200b password?\u2066"


async def test_a_question_is_one_line_that_names_the_remote(subtests: pytest.Subtests) -> None:
    form = {
        "message": HIDDEN,
        "requestedSchema": {
            "type": "object",
            "properties": {
                "a": {
                    "type": "string",
                    "title": "A\u202e\nB",
                    "description": "C\u200b\nD",
                    "oneOf": [{"const": "x", "title": "E\u2069\nF"}],
                }
            },
        },
    }
    page = {"message": HIDDEN, "mode": "url", "url": "https://shop.example/", "elicitationId": "1"}
    for params in (form, page):
        with subtests.test(params=params):
            shown: list[dict[str, Any]] = []

            def answer(method: str, params: dict[str, Any], shown: list[dict[str, Any]] = shown) -> dict[str, Any]:
                shown.append(params)
                return {"action": "decline"}

            asked = {"q": {"method": "elicitation/create", "params": params}}
            script = listing(GOOD, era="stateless", tools_call={"resultType": "input_required", "inputRequests": asked})
            await peer_of(script, answer=answer).call("r__good")
            assert shown[0]["message"] == "r: Shop: Your password?"
            if "requestedSchema" in shown[0]:
                field = shown[0]["requestedSchema"]["properties"]["a"]
                assert (field["title"], field["description"]) == ("A B", "C D")
                assert field["oneOf"] == [{"const": "x", "title": "E F"}]


async def test_a_form_with_hidden_characters_in_its_values_is_not_forwarded(subtests: pytest.Subtests) -> None:
    for properties in (
        {"a\u202e": {"type": "string"}},
        {"a": {"type": "string", "enum": ["x", "y\u200b"]}},
        {"a": {"type": "string", "oneOf": [{"const": "x\u2066", "title": "x"}]}},
    ):
        with subtests.test(properties=properties):
            form = {"message": "x", "requestedSchema": {"type": "object", "properties": properties}}
            asked = {"q": {"method": "elicitation/create", "params": form}}
            script = listing(GOOD, era="stateless", tools_call={"resultType": "input_required", "inputRequests": asked})
            peer = peer_of(script, answer=lambda method, params: {"action": "decline"})
            assert "invisible" in await peer.error("r__good")
            assert peer.rounds == 0


async def test_a_page_that_a_remote_requires_is_announced_in_one_line_with_its_name() -> None:
    page = {"mode": "url", "message": HIDDEN, "url": "https://shop.example/", "elicitationId": "1"}
    required = RemoteError(-32042, "x", {"elicitations": [page]})
    peer = peer_of(listing(GOOD, tools_call=required), version=HANDSHAKE)
    with pytest.raises(URLElicitationRequired) as raised:
        await peer.call("r__good")
    assert raised.value.data["elicitations"][0]["message"] == "r: Shop: Your password?"


async def test_titles_of_a_remote_are_one_line_of_visible_characters() -> None:
    peer = peer_of(listing({**GOOD, "title": "Read\u202e\nonly\u200b"}))
    (tool,) = (await peer.request("tools/list", {}))["tools"]
    assert tool["title"] == "Read only"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**70, -(2**70), 10**400, "object", "$ref", "#", "x-mcp-header", "\ud800", "ui://x", "a:b"])
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS | st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
FACTORY = components.ComponentFactory(
    "r",
    NamePrefixes("r", "r"),
    components.ComponentOptions(permission=None, scopes=(), rate=None),
    dict.fromkeys(("tool", "resource", "prompt"), lambda ctx: None),
    follow=lambda: None,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(kind=st.sampled_from(sorted(GOOD_ENTRIES)), entry=VALUES | st.dictionaries(MEMBERS, VALUES, max_size=5))
def test_any_entry_is_served_or_left_out(kind: str, entry: Any) -> None:
    """The list of a remote server is built entry by entry: an exception of one would take the others away."""
    for bad in (entry, {**GOOD_ENTRIES[kind], **entry} if isinstance(entry, dict) else entry):
        item = FACTORY.build(kind, bad)
        assert item is None or jsonrpc.loads(jsonrpc.dumps(item.wire))
    assert FACTORY.build(kind, GOOD_ENTRIES[kind]) is not None


async def test_an_exception_in_one_entry_removes_that_entry_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    check = components.check_schema

    def fail(schema: Any, where: str) -> Any:
        if "boom" in schema:
            raise RecursionError("too deep")
        return check(schema, where)

    monkeypatch.setattr(components, "check_schema", fail)
    bad = {"name": "bad", "inputSchema": {**SCHEMA, "boom": 1}}
    assert await peer_of(listing(bad, GOOD)).names() == ["r__good"]
    assert "RecursionError: too deep" in caplog.text

"""Handshake, discovery and version negotiation (basic/lifecycle, basic/versioning, server/discover)."""

from tests.interaction.clients import HANDSHAKE, META, STATELESS, Client
from tests.interaction.transports import contract

LATEST = HANDSHAKE[-1]


def hello(version, **extra):
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}, **extra}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


@contract
async def test_the_requested_revision_is_agreed_on(legacy, handshake):
    client = await legacy()
    assert client.hello["protocolVersion"] == handshake


async def test_an_unknown_revision_is_answered_with_the_newest_of_the_handshake_era(transport, subtests):
    for wanted in ["2026-07-28", "2023-01-01", "2099-12-31", "draft", ""]:
        with subtests.test(wanted=wanted):
            reply = await Client(transport, LATEST).post(hello(wanted))
            assert (reply.served, reply.result["protocolVersion"]) == (True, LATEST)


async def test_initialize_names_a_session_in_visible_ascii(legacy):
    client = await legacy()
    assert client.session
    assert all(0x21 <= ord(character) <= 0x7E for character in client.session)


async def test_session_ids_are_unique(latest_legacy):
    first, second = await latest_legacy(), await latest_legacy()
    assert first.session != second.session


async def test_server_info_has_the_fields_of_the_revision(legacy, handshake):
    info = (await legacy()).hello["serverInfo"]
    expected = {"name": "interaction", "version": "1.2.3"}
    if handshake >= "2025-06-18":
        expected["title"] = "Interaction tests"
    if handshake >= "2025-11-25":
        expected |= {"description": "Says and asks", "websiteUrl": "https://example.com"}
    assert info == expected


async def test_instructions_are_given_in_every_revision(connect):
    assert (await connect()).hello["instructions"] == "Call the tools"


@contract
async def test_capabilities_are_those_of_the_revision(connect, revision):
    capabilities = (await connect()).hello["capabilities"]
    expected = {"tools", "resources", "prompts", "logging", "completions"}
    if revision == "2024-11-05":
        expected -= {"completions"}
    assert set(capabilities) == expected


async def test_undeclared_methods_are_not_served(either):
    client = await either(server="pages")
    assert set(client.hello["capabilities"]) == {"tools", "resources", "logging"}
    for method in ("prompts/list", "prompts/get", "completion/complete"):
        params = {"name": "welcome"} if method == "prompts/get" else {}
        assert (await client.request(method, params)).refused(404 if client.stateless else 200, -32601)
    for method in ("tools/list", "resources/list", "resources/templates/list"):
        assert (await client.request(method)).served


async def test_subscriptions_are_served_only_where_they_are_declared(legacy):
    client = await legacy()
    reply = await client.request("resources/subscribe", {"uri": "note://static"})
    declared = client.hello["capabilities"]["resources"].get("subscribe", False)
    assert ("result" in reply.message) is declared
    assert declared or reply.error["code"] == -32601


async def test_initialized_is_accepted_with_an_empty_body(latest_legacy):
    client = await latest_legacy()
    reply = await client.notify("notifications/initialized")
    assert reply.accepted


async def test_requests_before_initialized_are_served(transport, handshake):
    client = Client(transport, handshake)
    reply = await client.post(hello(handshake))
    client.session = reply.headers.get("mcp-session-id")
    assert (await client.request("tools/list")).served


async def test_ping_is_answered_with_an_empty_object_before_and_after_initialize(transport, handshake):
    client = Client(transport, handshake)
    early = await client.post({"jsonrpc": "2.0", "id": "early", "method": "ping"})
    await client.open()
    for reply in (early, await client.request("ping")):
        assert (reply.served, reply.result) == (True, {})


async def test_a_second_initialize_opens_another_session(latest_legacy):
    client = await latest_legacy()
    reply = await client.post(hello(LATEST), headers={"mcp-session-id": None})
    assert reply.headers["mcp-session-id"] != client.session
    assert (await client.request("ping")).served


async def test_initialize_may_carry_the_version_header(transport, handshake):
    reply = await Client(transport, handshake).post(hello(handshake), headers={"mcp-protocol-version": handshake})
    assert (reply.served, reply.result["protocolVersion"]) == (True, handshake)


@contract
async def test_initialize_without_a_required_member_is_invalid_params(transport, subtests):
    for missing in ["protocolVersion", "capabilities", "clientInfo"]:
        with subtests.test(missing=missing):
            message = hello(LATEST)
            del message["params"][missing]
            reply = await Client(transport, LATEST).post(message)
            assert reply.error["code"] == -32602


async def test_initialize_with_a_member_of_the_wrong_type_is_invalid_params(transport, subtests):
    for bad in [{"protocolVersion": 7}, {"capabilities": []}, {"clientInfo": "me"}]:
        with subtests.test(bad=bad):
            reply = await Client(transport, LATEST).post(hello(LATEST, **bad))
            assert reply.error["code"] == -32602


async def test_unknown_capabilities_of_a_client_are_tolerated(transport):
    capabilities = {"roots": {"listChanged": True}, "novelty": {"deep": [1]}, "extensions": {"a.example/x": {}}}
    reply = await Client(transport, LATEST).post(hello(LATEST, capabilities=capabilities))
    assert reply.served


@contract
async def test_methods_of_no_or_another_era_are_not_found_in_the_handshake_era(legacy, subtests):
    client = await legacy()
    for method in ["nothing/like/this", "server/discover", "subscriptions/listen", "tasks/get"]:
        with subtests.test(method=method):
            assert (await client.request(method)).refused(200, -32601)


async def test_discovery_lists_the_stateless_revisions_only(modern):
    client = await modern().open()
    assert client.hello["supportedVersions"] == [STATELESS]


async def test_discovery_names_the_server_in_its_meta_and_not_in_its_body(modern):
    client = await modern().open()
    info = client.hello["_meta"][META + "serverInfo"]
    assert (info["name"], info["version"], info["title"]) == ("interaction", "1.2.3", "Interaction tests")
    assert "serverInfo" not in client.hello


async def test_every_result_of_the_stateless_era_names_the_server(modern):
    client = modern()
    for reply in (await client.request("tools/list"), await client.tool("add", {"a": 1, "b": 2})):
        assert reply.result["_meta"][META + "serverInfo"]["name"] == "interaction"


async def test_client_info_is_optional_in_the_stateless_era(modern):
    reply = await modern().tool("whoami")
    assert reply.result["structuredContent"]["client"] is None


async def test_client_info_of_the_request_reaches_the_handler(modern):
    reply = await modern().tool("whoami", meta={META + "clientInfo": {"name": "probe", "version": "1"}})
    assert reply.result["structuredContent"]["client"] == "probe"


async def test_client_info_of_the_handshake_reaches_the_handler(legacy, handshake):
    client = await legacy()
    reply = await client.tool("whoami")
    assert '"client":"tests"' in reply.result["content"][0]["text"]


async def test_no_session_is_named_to_a_stateless_client(modern):
    reply = await modern().request("tools/list", headers={"mcp-session-id": "made-up"})
    assert reply.served
    assert "mcp-session-id" not in reply.headers


@contract
async def test_a_server_limited_to_the_stateless_era_refuses_the_handshake_and_names_its_versions(modern):
    client = modern(server="modern")
    reply = await client.post(hello(LATEST), routing={"mcp-protocol-version": None, "mcp-method": None})
    assert reply.error["data"]["supported"] == [STATELESS]


async def test_a_server_limited_to_the_handshake_era_refuses_stateless_requests_and_names_its_versions(modern):
    reply = await modern(server="legacy").request("tools/list")
    assert reply.error["data"] == {"supported": list(HANDSHAKE), "requested": STATELESS}
    assert reply.status is None or reply.status >= 400
    assert "error" in reply.message


async def test_a_server_limited_to_the_stateless_era_takes_post_only(transport, subtests):
    for method in ["GET", "DELETE"]:
        with subtests.test(method=method):
            reply = await Client(transport, STATELESS, server="modern").post(method=method, body=b"")
            assert (reply.status, reply.headers["allow"]) == (405, "POST, OPTIONS")

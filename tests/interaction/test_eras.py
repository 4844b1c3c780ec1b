"""Which era a request belongs to, by its version header and the version in the `_meta` of its body.

    version header    version in _meta      treated as
    modern, unknown   any                   stateless
    absent            any                   stateless, and a header mismatch
    legacy            modern                stateless, and a header mismatch
    legacy            none, or legacy       handshake era, in the session
    absent            none, `initialize`    handshake
    absent            none, other           handshake era: the session's revision, or 2025-03-26
    GET, DELETE                             handshake era; 405 under a modern header

Legacy answers have no `resultType`; the stateless era answers with codes of its own.
"""

import pytest

from tests.interaction.clients import HANDSHAKE, META, STATELESS, Client

MODERN_META = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}}
HELLO = {"protocolVersion": HANDSHAKE[-1], "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@pytest.fixture
def post(transport):
    """Post one message with exactly these extra headers, as a client that has no habits of its own."""

    async def post(method, params=None, *, checked_as=STATELESS, **headers):
        client = Client(transport, checked_as)
        message = {"jsonrpc": "2.0", "id": 1, "method": method} | ({} if params is None else {"params": params})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await client.post(message, headers={"mcp-protocol-version": None, "mcp-method": None, **named})

    return post


def stateless(reply):
    return reply.result["resultType"] == "complete"


async def test_a_modern_or_unknown_version_header_makes_a_request_stateless_without_any_meta(post, subtests):
    for version in [STATELESS, "v999", "", "2026-07-29"]:
        with subtests.test(version=version):
            reply = await post("tools/list", {}, mcp_protocol_version=version, mcp_method="tools/list")
            assert reply.verdict == (400, -32602)


async def test_initialize_under_a_modern_or_unknown_version_header_is_a_stateless_request(post, subtests):
    for version in [STATELESS, "v999"]:
        with subtests.test(version=version):
            reply = await post("initialize", HELLO, mcp_protocol_version=version, mcp_method="initialize")
            assert reply.verdict == (400, -32602)


async def test_a_modern_meta_without_the_version_header_is_stateless_and_a_mismatch(post):
    reply = await post("tools/list", {"_meta": MODERN_META}, mcp_method="tools/list")
    assert reply.verdict == (400, -32020)


async def test_a_modern_meta_under_a_legacy_version_header_is_stateless_and_a_mismatch(post, subtests):
    for version in HANDSHAKE:
        with subtests.test(version=version):
            reply = await post(
                "tools/list", {"_meta": MODERN_META}, mcp_protocol_version=version, mcp_method="tools/list"
            )
            assert reply.verdict == (400, -32020)


async def test_a_legacy_version_header_without_a_modern_meta_is_legacy_and_needs_a_session(post, subtests):
    for version in HANDSHAKE[2:]:
        for stated in [False, True]:
            with subtests.test(version=version, stated=stated):
                meta = {"_meta": {META + "protocolVersion": version, META + "clientCapabilities": {}}} if stated else {}
                reply = await post("tools/list", meta, checked_as=version, mcp_protocol_version=version)
                assert (reply.status, reply.messages) == (400, [])


async def test_a_legacy_version_header_with_a_session_is_served_by_the_session(transport, subtests):
    for version in HANDSHAKE[2:]:
        with subtests.test(version=version):
            client = await Client(transport, version).open()
            reply = await client.request("tools/list", headers={"mcp-protocol-version": version})
            assert "resultType" not in reply.result


async def test_no_header_and_no_modern_meta_and_initialize_is_the_handshake(post):
    reply = await post("initialize", HELLO, checked_as=HANDSHAKE[-1])
    assert reply.result["protocolVersion"] == HANDSHAKE[-1]


async def test_no_header_and_no_modern_meta_is_the_session_s_revision(transport, handshake):
    client = await Client(transport, handshake).open()
    reply = await client.request("tools/list", headers={"mcp-protocol-version": None})
    assert "resultType" not in reply.result
    assert ("title" in next(t for t in reply.result["tools"] if t["name"] == "rich")) is (handshake >= "2025-06-18")


async def test_no_header_and_no_session_is_legacy_and_needs_a_session(post):
    reply = await post("tools/list", checked_as="2025-03-26")
    assert reply.status == 400


async def test_get_and_delete_under_a_modern_version_header_are_not_allowed(transport, subtests):
    for method in ["GET", "DELETE"]:
        with subtests.test(method=method):
            client = await Client(transport, HANDSHAKE[-1]).open()
            reply = await client.post(method=method, body=b"", headers={"mcp-protocol-version": STATELESS})
            assert reply.status == 405


async def test_the_method_name_does_not_decide_the_era(post):
    reply = await post(
        "initialize", {**HELLO, "_meta": MODERN_META}, mcp_protocol_version=STATELESS, mcp_method="initialize"
    )
    assert reply.verdict == (404, -32601)


async def test_the_method_header_does_not_decide_the_era(post):
    reply = await post("initialize", HELLO, checked_as=HANDSHAKE[-1], mcp_method="initialize")
    assert reply.result["protocolVersion"] == HANDSHAKE[-1]


async def test_a_session_header_does_not_decide_the_era(transport):
    legacy = await Client(transport, HANDSHAKE[-1]).open()
    reply = await Client(transport, STATELESS).request("tools/list", headers={"mcp-session-id": legacy.session})
    assert stateless(reply)


async def test_a_meta_without_a_version_does_not_decide_the_era(transport, handshake):
    client = await Client(transport, handshake).open()
    reply = await client.request("tools/list", {"_meta": {"progressToken": 1}})
    assert "resultType" not in reply.result


async def test_both_eras_are_served_side_by_side(transport):
    legacy, modern = await Client(transport, HANDSHAKE[-1]).open(), Client(transport, STATELESS)
    for _ in range(2):
        assert stateless(await modern.request("tools/list"))
        assert "resultType" not in (await legacy.request("tools/list")).result


async def test_an_unknown_version_header_in_a_session_is_refused(latest_legacy, subtests):
    for version in ["v999", "2023-01-01"]:
        with subtests.test(version=version):
            client = await latest_legacy()
            reply = await client.request("tools/list", headers={"mcp-protocol-version": version})
            assert reply.status == 400


async def test_another_known_version_header_in_a_session_changes_nothing(transport):
    client = await Client(transport, "2025-11-25").open()
    reply = await client.request("tools/list", headers={"mcp-protocol-version": "2025-06-18"})
    assert reply.status in (200, 400)
    if reply.status == 200:
        assert "icons" in next(t for t in reply.result["tools"] if t["name"] == "rich")


async def test_a_repeated_version_header_is_a_mismatch(modern):
    client = modern()
    message = client.request_message("tools/list")
    reply = await client.post(message, extra=[("mcp-protocol-version", STATELESS)])
    assert reply.verdict == (400, -32020)

"""Profiles of clients: the messages in which a server sees them."""

import pytest

from mcp_django.protocol import meta
from mcp_django.protocol.revisions import LATEST, REVISIONS
from mcp_django.transports.inprocess.profile import CLIENT_INFO, ELICITATION, InProcessProfile

HANDSHAKE_VERSION = next(version for version in REVISIONS if InProcessProfile(version=version).has_handshake)


def test_a_stateless_request_describes_its_client() -> None:
    request = InProcessProfile(capabilities=ELICITATION).build_request(
        3, "tools/list", {"cursor": "a"}, progressToken=3
    )
    assert (request["jsonrpc"], request["id"], request["method"]) == ("2.0", 3, "tools/list")
    assert request["params"] == {
        "cursor": "a",
        "_meta": {
            meta.PROTOCOL_VERSION: LATEST.version,
            meta.CLIENT_CAPABILITIES: ELICITATION,
            meta.CLIENT_INFO: CLIENT_INFO,
            meta.LOG_LEVEL: "info",
            "progressToken": 3,
        },
    }


def test_a_session_has_the_description_in_its_first_request_only() -> None:
    profile = InProcessProfile(version=HANDSHAKE_VERSION, capabilities=ELICITATION)
    assert profile.build_initialize(1)["params"] == {
        "protocolVersion": HANDSHAKE_VERSION,
        "capabilities": ELICITATION,
        "clientInfo": CLIENT_INFO,
    }
    assert profile.build_params({"name": "a"}) == {"name": "a"}
    assert profile.build_params({}, progressToken=2) == {"_meta": {"progressToken": 2}}


@pytest.mark.parametrize("version", ["1999-01-01", "?"])
def test_an_unknown_revision_is_sent_as_it_is(version: str) -> None:
    params = InProcessProfile(version=version).build_params({})
    assert params["_meta"][meta.PROTOCOL_VERSION] == version


def test_entries_of_the_params_replace_those_of_the_profile_and_none_removes_them() -> None:
    params = {"_meta": {meta.LOG_LEVEL: "error", meta.CLIENT_INFO: None, "com.example/a": 1}}
    entries = InProcessProfile().build_params(params)["_meta"]
    assert (entries[meta.LOG_LEVEL], entries["com.example/a"]) == ("error", 1)
    assert meta.CLIENT_INFO not in entries

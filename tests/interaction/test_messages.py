"""The check of all messages of these tests refuses invalid messages."""

import pytest

from tests.interaction.clients import HANDSHAKE, REVISIONS
from tests.interaction.messages import validate_message

OK = {"content": [{"type": "text", "text": "x"}]}
MODERN = {**OK, "resultType": "complete"}
PING = {"jsonrpc": "2.0", "id": "s1", "method": "ping"}


def response(result, id=1):
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error(code, **more):
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no", **more}}


def test_a_valid_result_passes_the_message_check(subtests):
    for revision in REVISIONS:
        with subtests.test(revision=revision):
            validate_message(revision, response(MODERN if revision == "2026-07-28" else OK), "tools/call")


REFUSED = [
    ("2025-11-25", response(MODERN), "tools/call"),
    ("2026-07-28", response(OK), "tools/call"),
    ("2025-03-26", response({**OK, "structuredContent": {}}), "tools/call"),
    ("2025-06-18", response({**OK, "structuredContent": [1]}), "tools/call"),
    ("2025-06-18", response({"content": [{"type": "video"}]}), "tools/call"),
    ("2024-11-05", response({"content": [{"type": "audio", "data": "AA==", "mimeType": "audio/wav"}]}), "tools/call"),
    ("2024-11-05", response({"content": [{"type": "text", "text": "x", "_meta": {}}]}), "tools/call"),
    ("2025-06-18", response({"tools": [{"name": "a", "inputSchema": {"type": "object"}, "icons": []}]}), "tools/list"),
    ("2025-11-25", response({"tools": [{"name": "a"}]}), "tools/list"),
    ("2025-11-25", response({"extra": 1}), "ping"),
    ("2025-11-25", response({}), None),
    ("2026-07-28", response({**MODERN, "ttlMs": -1}), "tools/list"),
    ("2026-07-28", response({"resultType": "input_required", "requestState": "x"}), "tools/list"),
    ("2026-07-28", PING, None),
    ("2026-07-28", error(-32002), "resources/read"),
    ("2026-07-28", error(-32042), "tools/call"),
    ("2026-07-28", error(-32021), "tools/call"),
    ("2026-07-28", error(-32022, data={"supported": []}), "tools/call"),
    ("2025-11-25", error(-32020), "tools/call"),
    ("2025-06-18", error(-32042), "tools/call"),
    ("2025-11-25", {**error(-32600), "id": None}, None),
    ("2024-11-05", {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}, None),
]
REFUSED += [
    ("2024-11-05", {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}, None)
    for params in [{"progressToken": 1, "progress": 1, "message": "new in 2025-03-26"}]
]


def test_the_message_check_refuses_undefined_members(subtests):
    for revision, message, method in REFUSED:
        with subtests.test(revision=revision, message=message), pytest.raises((AssertionError, KeyError)):
            validate_message(revision, message, method)


def test_requests_of_the_server_pass_the_check_in_the_handshake_era(subtests):
    for revision in HANDSHAKE:
        with subtests.test(revision=revision):
            validate_message(revision, PING, None)

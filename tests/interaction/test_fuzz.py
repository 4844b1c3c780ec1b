"""Requests spoiled at random, alike in every run: never a server error, never a hang, and the next is served."""

import copy
import json
import random
import string

import pytest

from tests.interaction.clients import HANDSHAKE, STATELESS, Client
from tests.interaction.transports import contract
from tests.interaction.wire import Exchange, http_scope

ROUNDS = 60
JUNK = [
    *(None, True, False, 0, -1, 1.5, 2**63, 2**64, 10**40, 1e308, "", " ", "\x00", "\u202e", "é", "😀", "a" * 3000),
    *("__proto__", "../..", "{}", "$ref", "=?base64?!!?=", [], {}, [[]], [None] * 50, {"": ""}, {"_meta": {}}),
    *({"$ref": "#"}, {"jsonrpc": "2.0"}, {"io.modelcontextprotocol/protocolVersion": 1}),
]
REQUESTS = [
    ("initialize", {"protocolVersion": HANDSHAKE[-1], "capabilities": {}, "clientInfo": {"name": "f", "version": "1"}}),
    ("ping", {}),
    ("server/discover", {}),
    ("tools/list", {"cursor": "x"}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ("tools/call", {"name": "rich", "arguments": {}}),
    ("tools/call", {"name": "routed", "arguments": {"region": "north", "shard": 1}}),
    ("tools/call", {"name": "steps", "arguments": {"count": 2}, "_meta": {"progressToken": "t"}}),
    ("tools/call", {"name": "ask_pair", "arguments": {}, "inputResponses": {"a": {"action": "accept", "content": {}}}}),
    ("resources/read", {"uri": "note://by/somebody"}),
    ("resources/templates/list", {}),
    ("prompts/get", {"name": "welcome", "arguments": {"name": "Al"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "welcome"}, "argument": {"name": "tone", "value": "w"}},
    ),
    ("logging/setLevel", {"level": "info"}),
    ("notifications/cancelled", {"requestId": 1}),
]


def list_paths(value, path=()):
    """The paths of everything inside a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from list_paths(inner, (*path, key))


def mutate(message, chance):
    """Replace, drop or add one thing somewhere."""
    message = copy.deepcopy(message)
    path = chance.choice([path for path in list_paths(message) if path] or [()])
    if not path:
        return chance.choice(JUNK)
    place = message
    for key in path[:-1]:
        place = place[key]
    match chance.randrange(4):
        case 0:
            del place[path[-1]]
        case 1 if isinstance(place, dict):
            place["".join(chance.choices(string.printable, k=5))] = chance.choice(JUNK)
        case _:
            place[path[-1]] = copy.deepcopy(chance.choice(JUNK))
    return message


def mutate_headers(headers, chance):
    """Change, drop, repeat or add one header."""
    name = chance.choice(list(headers))
    junk = chance.choice(
        ["", " ", "\x00", "\xff", "x" * 5000, "*/*", "2025-06-18", STATELESS, "tools/list", "=?base64?QQ==?="]
    )
    match chance.randrange(4):
        case 0:
            return [(n, v) for n, v in headers.items() if n != name]
        case 1:
            return [*headers.items(), (name, junk)]
        case 2:
            return [*headers.items(), ("mcp-param-region", junk), ("last-event-id", junk)]
        case _:
            return [*{**headers, name: junk}.items()]


def mutate_bytes(body, chance):
    """Cut, double or flip something in the encoded body."""
    at = chance.randrange(len(body) + 1)
    match chance.randrange(3):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + body[at // 2 :]
        case _:
            return body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]


def check(message):
    """Loose: a spoiled request may have become one of another revision."""
    assert message["jsonrpc"] == "2.0"
    assert len({"result", "error", "method"} & message.keys()) == 1
    assert "error" not in message or isinstance(message["error"]["code"], int)
    assert "Internal error" not in json.dumps(message), "a bug of the server, which the client is only told about"


@contract
@pytest.mark.revisions(STATELESS, "2025-11-25", "2025-03-26")
async def test_mutated_requests_are_answered_and_leave_no_state(transport, revision, subtests):
    for seed in range(4):
        with subtests.test(seed=seed):
            chance = random.Random(f"{revision} {seed}")
            client = await Client(transport, revision).open()
            if not transport.http:
                client.channel.check = check
            for _ in range(ROUNDS):
                method, params = chance.choice(REQUESTS)
                message = client.request_message(method, copy.deepcopy(params))
                headers = client.headers(message)
                for _ in range(chance.randrange(3)):
                    message = mutate(message, chance)
                if chance.random() < 0.1:
                    message = [message, message]
                pairs = mutate_headers(headers, chance) if chance.random() < 0.3 else list(headers.items())
                body = json.dumps(message).encode()
                body = mutate_bytes(body, chance) if chance.random() < 0.2 else body
                if not transport.http:
                    # Invalid UTF-8 cannot be sent in a text frame.
                    client.channel.send(body.decode(errors="replace").encode())
                    await client.channel.settle()
                    continue
                verb = (
                    "POST"
                    if chance.random() < 0.95
                    else chance.choice(["GET", "DELETE", "PUT", "OPTIONS", "HEAD", "BREW"])
                )
                if verb == "DELETE":
                    pairs = [(name, value) for name, value in pairs if name != "mcp-session-id"]
                exchange = Exchange(transport.app, http_scope(verb, client.path(), pairs), [body], check)
                status, sent = await exchange.started()
                if sent.get("content-type", "").startswith("text/event-stream"):
                    exchange.leave()  # it may ask, and gets no answer
                    await exchange.end()
                else:
                    status = (await exchange.reply()).status
                assert status < 500 or status == 503, (verb, pairs, body)
            if not transport.http:
                client.channel.take_all(None, common=True)
            assert (await client.tool("add", {"a": 1, "b": 2})).result["content"][0]["text"] == "3"

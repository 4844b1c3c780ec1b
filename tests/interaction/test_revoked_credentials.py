"""Long calls with streams, and a credential that is revoked before their end."""

import asyncio

import pytest

from tests.interaction.transports import on_http
from tests.interaction.verifiers import SCOPES

SPEAK = {"name": "speak_then_wait"}
PROGRESS = {"progressToken": 1}


@pytest.fixture
def known(settings, monkeypatch):
    """The tokens that are good; credentials are verified at every look."""
    settings.MCP = {**settings.MCP, "TOKEN_CACHE_SECONDS": 0}
    tokens = ["alice", "bob", "writer", "carol"]
    monkeypatch.setattr("tests.interaction.verifiers.KNOWN", tokens)
    return tokens


async def start_speaking(client, checkpoints):
    """Start a call that sends a message on its stream and waits."""
    exchange = client.begin("tools/call", SPEAK, meta=PROGRESS)
    assert (await exchange.message())["method"] == "notifications/progress"
    await checkpoints.until("wait reached", checkpoints.counts["wait reached"] or 1)
    return exchange


async def read_rest(exchange):
    """Read the stream to its end; return its data."""
    data = []
    while (frame := await exchange.frame()) is not None:
        data += [frame.data] if frame.data else []
    await exchange.end()
    return data


@on_http
async def test_a_stateless_call_is_cancelled_when_its_token_is_revoked(known, clock, modern, checkpoints):
    revoked, good = (
        await start_speaking(modern(token="alice"), checkpoints),
        await start_speaking(modern(token="bob"), checkpoints),
    )
    known.remove("alice")
    assert await clock.advance_while(read_rest(revoked)) == []
    await checkpoints.until("wait cancelled")
    checkpoints.gate("wait").set()
    assert (await good.reply()).served
    assert checkpoints.counts["wait cancelled"] == 1


@on_http
async def test_a_session_call_stream_ends_and_can_be_resumed_with_a_valid_credential(
    known, clock, latest_legacy, checkpoints
):
    client = await latest_legacy(token="alice")
    exchange = await start_speaking(client, checkpoints)
    known.remove("alice")
    assert await clock.advance_while(read_rest(exchange)) == []
    assert (await client.listen(exchange.last_id).started())[0] == 401
    known.append("alice")
    resumed = client.listen(exchange.last_id)
    checkpoints.gate("wait").set()
    assert (await resumed.message())["result"]["content"][0]["text"] == "waited"


async def test_the_stream_of_a_call_ends_when_its_token_loses_a_scope(known, clock, either, checkpoints, monkeypatch):
    less, more = (
        await start_speaking(await either(token="writer"), checkpoints),
        await start_speaking(await either(token="carol"), checkpoints),
    )
    monkeypatch.setitem(SCOPES, "carol", frozenset({"notes:read", "notes:write"}))
    monkeypatch.setitem(SCOPES, "writer", frozenset({"notes:read"}))
    assert await clock.advance_while(read_rest(less)) == []
    checkpoints.gate("wait").set()
    assert (await more.reply()).served


async def test_the_stream_of_a_call_goes_on_while_credentials_cannot_be_verified(
    known, clock, either, checkpoints, monkeypatch
):
    exchange = await start_speaking(await either(), checkpoints)
    asked = asyncio.Event()

    class Down:
        def __contains__(self, token):
            asked.set()
            raise RuntimeError("the directory is down")

    with monkeypatch.context() as patch:
        patch.setattr("tests.interaction.verifiers.KNOWN", Down())
        await clock.advance_while(asked.wait())
    checkpoints.gate("wait").set()
    assert (await exchange.reply()).served


async def test_required_scopes_are_computed_from_the_request_that_opened_the_stream(
    known, clock, settings, either, checkpoints
):
    described = {
        **settings.MCP["SERVERS"]["interaction"],
        "REQUIRED_SCOPES": "tests.interaction.verifiers.scopes_of_the_host",
    }
    settings.MCP = {**settings.MCP, "SERVERS": {**settings.MCP["SERVERS"], "interaction": described}}
    revoked, good = (
        await start_speaking(await either(token="alice"), checkpoints),
        await start_speaking(await either(token="bob"), checkpoints),
    )
    known.remove("alice")
    assert await clock.advance_while(read_rest(revoked)) == []
    checkpoints.gate("wait").set()
    assert (await good.reply()).served

"""What is under way when its credential is withdrawn: long calls, whose answers are streams."""

import asyncio

import pytest

from tests.interaction.people import SCOPES
from tests.interaction.surroundings import advance_until
from tests.interaction.transports import on_http

SPEAK = {"name": "speak_then_wait"}
PROGRESS = {"progressToken": 1}


@pytest.fixture
def known(settings, monkeypatch):
    """The tokens that are good; credentials are verified at every look."""
    settings.MCP = {**settings.MCP, "TOKEN_CACHE_SECONDS": 0}
    tokens = ["alice", "bob", "writer", "carol"]
    monkeypatch.setattr("tests.interaction.people.KNOWN", tokens)
    return tokens


async def speaking(client, stage):
    """A call that has said something on its stream, and waits."""
    exchange = client.begin("tools/call", SPEAK, meta=PROGRESS)
    assert (await exchange.message())["method"] == "notifications/progress"
    await stage.until("wait reached", stage.counts["wait reached"] or 1)
    return exchange


async def over(exchange):
    """Wait until the stream is over; what was said on the rest of it."""
    said = []
    while (frame := await exchange.frame()) is not None:
        said += [frame.data] if frame.data else []
    await exchange.end()
    return said


@on_http
async def test_a_stateless_call_is_cancelled_when_its_token_is_revoked(known, clock, modern, stage):
    revoked, good = await speaking(modern(token="alice"), stage), await speaking(modern(token="bob"), stage)
    known.remove("alice")
    assert await advance_until(clock, over(revoked)) == []
    await stage.until("wait cancelled")
    stage.gate("wait").set()
    assert (await good.reply()).served
    assert stage.counts["wait cancelled"] == 1


@on_http
async def test_the_stream_of_a_session_s_call_ends_and_can_be_resumed_with_a_credential_that_is_good(
    known, clock, latest_legacy, stage
):
    client = await latest_legacy(token="alice")
    exchange = await speaking(client, stage)
    known.remove("alice")
    assert await advance_until(clock, over(exchange)) == []
    assert (await client.listen(exchange.last_id).started())[0] == 401
    known.append("alice")
    resumed = client.listen(exchange.last_id)
    stage.gate("wait").set()
    assert (await resumed.message())["result"]["content"][0]["text"] == "waited"


async def test_a_call_s_stream_ends_when_its_token_has_lost_a_scope_and_not_when_it_has_won_one(
    known, clock, either, stage, monkeypatch
):
    less, more = await speaking(await either(token="writer"), stage), await speaking(await either(token="carol"), stage)
    monkeypatch.setitem(SCOPES, "carol", frozenset({"notes:read", "notes:write"}))
    monkeypatch.setitem(SCOPES, "writer", frozenset({"notes:read"}))
    assert await advance_until(clock, over(less)) == []
    stage.gate("wait").set()
    assert (await more.reply()).served


async def test_a_call_s_stream_goes_on_while_credentials_cannot_be_verified(known, clock, either, stage, monkeypatch):
    exchange = await speaking(await either(), stage)
    asked = asyncio.Event()

    class Down:
        def __contains__(self, token):
            asked.set()
            raise RuntimeError("the directory is down")

    with monkeypatch.context() as patch:
        patch.setattr("tests.interaction.people.KNOWN", Down())
        await advance_until(clock, asked.wait())
    stage.gate("wait").set()
    assert (await exchange.reply()).served


async def test_a_function_of_the_request_is_asked_about_the_request_that_opened_the_stream(
    known, clock, settings, either, stage
):
    described = {
        **settings.MCP["SERVERS"]["interaction"],
        "REQUIRED_SCOPES": "tests.interaction.people.scopes_of_the_host",
    }
    settings.MCP = {**settings.MCP, "SERVERS": {**settings.MCP["SERVERS"], "interaction": described}}
    revoked, good = await speaking(await either(token="alice"), stage), await speaking(await either(token="bob"), stage)
    known.remove("alice")
    assert await advance_until(clock, over(revoked)) == []
    stage.gate("wait").set()
    assert (await good.reply()).served

"""The credential and the liveness of a client, while its channel is open."""

import asyncio
from time import time
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.server.ports import Overloaded
from mcp_django.transports.connection.connection import open_connection
from mcp_django.transports.connection.options import CloseReason, ConnectionOptions
from mcp_django.transports.services import build_services
from tests.transports.connection.client import FakeClient, call
from tests.transports.connection.conftest import ALICE


class Credentials:
    """A credential with the result `now`: a principal, or a refusal."""

    def __init__(self) -> None:
        self.now: Any = ALICE

    def get_cached(self) -> DjangoPrincipal | None:
        return self.now if self.now is ALICE else None

    async def verify(self) -> DjangoPrincipal:
        if isinstance(self.now, Exception):
            raise self.now
        return self.now


def alice(**given: Any) -> DjangoPrincipal:
    return DjangoPrincipal(issuer="tests", subject="alice", **given)


async def test_a_credential_that_lost_a_scope_closes_the_channel_at_the_next_message(
    subtests: pytest.Subtests, peer
) -> None:
    for now, ending in [
        (TransportRefusal(401), CloseReason.REVOKED),
        (alice(scopes=frozenset()), CloseReason.FORBIDDEN),
        (DjangoPrincipal(issuer="tests", subject="bob", scopes=frozenset({"read"})), CloseReason.REVOKED),
    ]:
        with subtests.test(now=now, ending=ending):
            credential = Credentials()
            async with peer(credential=credential) as client:
                await client.modern(1, "tools/call", **call("add", a=1, b=1))
                assert (await client.next())["id"] == 1
                credential.now = now
                await client.modern(2, "tools/call", **call("add", a=1, b=1))
                assert await client.rest() == []
                assert client.duplex.close_reason is ending


async def test_a_running_call_ends_with_the_credential(peer, stage):
    credential = Credentials()
    async with peer(credential=credential) as client:
        await client.modern(1, "tools/call", **call("wait"))
        await stage.begun.wait()
        credential.now = TransportRefusal(401)
        assert client.duplex.credential is not None
        await client.duplex.credential.is_valid()
        await stage.cancelled.wait()
        assert client.duplex.close_reason is CloseReason.REVOKED


async def test_a_channel_goes_on_without_verification_and_its_requests_are_refused(peer):
    credential = Credentials()
    async with peer(credential=credential) as client:
        credential.now = TransportRefusal(503)
        await client.modern(1, "tools/list")
        refused = await client.next()
        assert (refused["id"], refused["error"]["code"]) == (1, -32603)
        assert client.duplex.credential is not None
        await client.duplex.credential.is_valid()
        credential.now = ALICE
        await client.modern(2, "tools/list")
        assert (await client.next())["result"]["tools"]


async def test_later_grants_apply_to_later_calls(peer):
    credential = Credentials()
    async with peer(credential=credential) as client:
        credential.now = alice(scopes=frozenset({"read", "write"}))
        await client.modern(1, "tools/call", **call("scopes"))
        assert (await client.next())["result"]["structuredContent"] == {"result": ["read", "write"]}


async def test_each_call_has_a_separate_request_with_the_last_verified_user(peer):
    credential = Credentials()

    def make_request(principal: DjangoPrincipal) -> Any:
        return SimpleNamespace(user=str(principal.user), notes=[])

    async with peer(credential=credential, make_request=make_request) as client:
        for id, user in enumerate(("before", "after")):
            credential.now = alice(user=user, scopes=ALICE.scopes)
            await client.modern(id, "tools/call", **call("note"))
            assert (await client.next())["result"]["structuredContent"] == {"result": [user]}


async def test_a_channel_is_closed_when_its_credential_expires(server, clock):
    credential = Credentials()
    credential.now = alice(expires_at=time() + 60, scopes=ALICE.scopes)
    duplex = open_connection(build_services(server), credential.now, ConnectionOptions(credential=credential))
    client = FakeClient(duplex)
    try:
        await clock.advance(59)
        assert duplex.close_reason is None
        await clock.advance(1.1)
        assert await client.rest() == []
        assert duplex.close_reason is CloseReason.REVOKED
    finally:
        await duplex.close()


async def test_channels_per_owner_are_limited(server, settings):
    settings.MCP = {"LIMITS": {"MAX_STREAMS_PER_OWNER": 1}}
    services = build_services(server)
    first = open_connection(services, ALICE)
    with pytest.raises(Overloaded):
        open_connection(services, ALICE)
    await first.close()
    await open_connection(services, ALICE).close()


async def test_a_silent_client_of_a_session_gets_a_ping(peer, settings, clock):
    settings.MCP = {"LIMITS": {"PING": 40, "KEEP_ALIVE": 10}}
    async with peer(sends_pings=True) as client:
        await client.initialize()
        for _ in range(3):
            asking = asyncio.ensure_future(client.next())
            await clock.advance_until(asking.done)
            ping = await asking
            assert ping["method"] == "ping"
            await client.send({"jsonrpc": "2.0", "id": ping["id"], "result": {}})
        assert client.duplex.close_reason is None


async def test_a_client_that_does_not_answer_a_ping_counts_as_disconnected(peer, settings, stage, clock):
    settings.MCP = {"LIMITS": {"PING": 40, "KEEP_ALIVE": 10}}
    async with peer(sends_pings=True) as client:
        await client.initialize()
        await client.legacy(1, "tools/call", **call("wait"))
        reading = asyncio.ensure_future(client.rest())
        await clock.advance_until(reading.done)
        assert client.duplex.close_reason is CloseReason.PING_TIMEOUT
        await stage.cancelled.wait()


async def test_a_client_without_a_session_gets_no_ping(peer, settings, clock):
    settings.MCP = {"LIMITS": {"PING": 40, "KEEP_ALIVE": 10}}
    async with peer(sends_pings=True) as client:
        checked = asyncio.Event()
        check = client.duplex.check

        def counted(send_timeout: float) -> None:
            check(send_timeout)
            checked.set()

        client.duplex.check = counted
        await clock.advance_until(checked.is_set)
        await client.modern(1, "server/discover")
        assert (await client.next())["id"] == 1

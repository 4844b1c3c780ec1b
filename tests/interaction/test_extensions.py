"""Extensions over every transport, in both eras (basic/lifecycle, capability negotiation)."""

import pytest

from tests.interaction.clients import STATELESS
from tests.interaction.extensions import DECLARED
from tests.interaction.test_subscriptions_listen import ID, acknowledged, change, disconnect, listen
from tests.interaction.transports import contract, contract_with_headers

pytestmark = pytest.mark.django_db
SERVER = "extended"


@contract
async def test_a_client_that_declares_an_extension_calls_its_methods(connect, revision):
    client = await connect(server=SERVER, capabilities=DECLARED)

    reply = await client.request("counters/increase", {"name": "visits", "by": 2})
    assert reply.served
    assert (reply.result["name"], reply.result["count"]) == ("visits", 2)

    undeclared = await connect(server=SERVER, capabilities={})
    reply = await undeclared.request("counters/increase", {"name": "visits"})
    assert reply.refused(400, -32021) if revision == STATELESS else reply.refused(200, -32601)


@contract_with_headers
async def test_a_change_reported_by_any_process_reaches_the_clients_that_follow_the_key(modern):
    client = modern(server=SERVER, capabilities=DECLARED)
    await client.request("counters/increase", {"name": "visits"})
    exchange = listen(client, counterNames=["visits", "unknown"])
    assert await acknowledged(exchange) == {"counterNames": ["visits"]}

    await change("extension", {"field": "counterNames", "key": "visits"}, SERVER)

    message = await exchange.message()
    assert message["method"] == "notifications/counters"
    assert {"name": "visits", "count": 1}.items() <= message["params"].items()
    assert ID in message["params"]["_meta"]
    await disconnect(exchange)

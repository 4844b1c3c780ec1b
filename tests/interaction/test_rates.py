"""How often may be asked: of a principal, of an address, and with credentials that are not good."""

from typing import Any

import pytest

from tests.interaction.transports import contract, on_http


@pytest.fixture
def rates(settings: Any) -> Any:
    """`rates(PRINCIPAL="2/h")`. Call it before the first client connects."""

    def rate(**values: Any) -> None:
        settings.MCP = {**settings.MCP, "RATES": values}

    return rate


CALL = {"a": 1, "b": 2}


@contract
async def test_messages_over_the_rate_of_a_principal_are_refused_before_they_run(either, rates, checkpoints):
    rates(PRINCIPAL="5/h")
    client = await either(token="alice")
    replies = [await client.tool("add", CALL) for _ in range(8)]
    served = [reply for reply in replies if reply.served]
    assert 0 < len(served) <= 5
    assert len(served) == checkpoints.counts["add"]
    last = replies[-1]
    assert not last.served
    assert "wait" in last.error["message"]
    if last.status is not None:
        assert last.status == 429
        assert int(last.headers["retry-after"]) > 0


async def test_each_principal_has_a_rate_of_its_own(either, rates):
    rates(PRINCIPAL="5/h")
    client = await either(token="alice")
    while (await client.tool("add", CALL)).served:
        pass
    assert (await (await either(token="bob")).tool("add", CALL)).served


@on_http
async def test_requests_over_the_rate_of_an_address_are_refused_for_every_principal(modern, rates):
    rates(ADDRESS="3/h")
    statuses = [(await modern(token=token).tool("add", CALL)).status for token in ("alice", "bob", "nobody", "alice")]
    assert statuses == [200, 200, 401, 429]


async def test_forwarding_headers_of_a_client_do_not_change_its_address(modern, rates):
    rates(ADDRESS="2/h", NUM_PROXIES=1)
    client = modern(token="alice")
    found = [
        (await client.tool("add", CALL, headers={"x-forwarded-for": f"192.0.2.{number}, 203.0.113.9"})).status
        for number in range(4)
    ]
    assert found == [200, 200, 429, 429]
    assert (await client.tool("add", CALL, headers={"x-forwarded-for": "203.0.113.9, 192.0.2.7"})).status == 200


@on_http
async def test_after_many_bad_tokens_an_address_is_refused_unless_its_token_is_known(modern, rates):
    rates(TOKEN_FAILURES="3/h")
    known = modern(token="alice")
    assert (await known.tool("add", CALL)).status == 200
    statuses = [(await modern(token=f"guess{number}").tool("add", CALL)).status for number in range(5)]
    assert statuses == [401, 401, 401, 429, 429]
    late = await modern(token="bob").tool("add", CALL)
    assert late.status == 429
    assert int(late.headers["retry-after"]) > 0
    assert (await known.tool("add", CALL)).status == 200

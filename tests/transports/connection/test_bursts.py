"""Bursts of notifications that exceed the queue of a session stream."""

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction

from mcp_django.notifications import broadcast
from mcp_django.transports.connection.connection import open_connection
from mcp_django.transports.connection.options import CloseReason, ConnectionOptions
from mcp_django.transports.services import get_transport_services
from tests.transports.connection.client import FakeClient
from tests.transports.connection.conftest import ALICE

METHOD = "notifications/acme/row"


@transaction.atomic
def send_notifications(count: int) -> None:
    for number in range(count):
        broadcast(METHOD, {"number": number})


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("events", [3, 1000])
async def test_a_reading_client_gets_all_messages_of_a_burst_once_and_in_order(settings, events):
    settings.MCP = {**settings.MCP, "LIMITS": {"EVENTS": events}}
    client = FakeClient(open_connection(get_transport_services("default"), ALICE, ConnectionOptions()))
    try:
        await client.initialize()
        count = 2 * events + 1
        await sync_to_async(send_notifications)(count)
        assert [(await client.next())["params"]["number"] for _ in range(count)] == list(range(count))
        assert client.duplex.close_reason is None
    finally:
        await client.duplex.close()
    assert client.duplex.close_reason is CloseReason.CLIENT_GONE

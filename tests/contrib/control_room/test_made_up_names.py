"""Thousands of names that a client makes up: tables and pages stay as small as with one name."""

import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from mcp_django import Server
from mcp_django.contrib.control_room.models import UNKNOWN_NAME, CallLogEntry, CallRollup, Period, UsageRollup
from mcp_django.contrib.control_room.options import RecordSettings
from mcp_django.contrib.control_room.recording.maintenance import merge_rollups
from mcp_django.contrib.control_room.recording.recorder import CallRecorder
from mcp_django.protocol import meta
from mcp_django.protocol.errors import MCPError
from tests.contrib.control_room.conftest import ALIAS
from tests.server.client import PipelineClient

pytestmark = pytest.mark.django_db
NAMES = 2_000
"""Made-up names of each kind. With five kinds, these are 10,000."""
MAX_ELEMENTS = 2_500
"""Maximum elements of a page."""


async def call_with_made_up_names(server: Server) -> None:
    client = PipelineClient(server)
    for number in range(NAMES):
        name = f"made-up-{number}"
        info = {meta.CLIENT_INFO: {"name": name, "version": name}}
        requests: list[tuple[str, dict[str, Any]]] = [
            ("tools/call", {"name": name}),
            ("prompts/get", {"name": name}),
            ("resources/read", {"uri": f"{name}://{name}"}),
            ("resources/read", {"uri": f"notes://{name}"}),
            (f"made/up/{name}", {}),
        ]
        for method, params in requests:
            try:
                await client.request(method, {**params, "_meta": info})
            except MCPError:
                pass


def test_made_up_names_add_one_row_for_each_kind_and_period(
    server: Server, recorder: CallRecorder, client: Client
) -> None:
    async_to_sync(call_with_made_up_names)(server)
    assert recorder.flush()
    merge_rollups()

    minutes = CallRollup.objects.filter(period=Period.MINUTE).values("start").distinct().count()
    kinds = {("tools/call", UNKNOWN_NAME), ("prompts/get", UNKNOWN_NAME), ("resources/read", UNKNOWN_NAME)}
    kinds |= {("resources/read", "notes://{name}"), (UNKNOWN_NAME, "")}
    assert set(CallRollup.objects.values_list("method", "name")) == kinds
    assert CallRollup.objects.count() <= minutes * len(kinds)
    assert sum(CallRollup.objects.values_list("count", flat=True)) == 5 * NAMES
    assert UsageRollup.objects.count() <= 2 * len(kinds)  # of one hour, or two
    assert CallLogEntry.objects.count() <= minutes * RecordSettings().calls_per_minute

    client.force_login(User.objects.create_superuser("boss"))
    room = "admin:mcp_control_room_controlroom"
    for page in (
        client.get(reverse(f"{room}_changelist")),
        client.get(reverse(f"{room}_target", query={"server": ALIAS, "method": "tools/call", "name": UNKNOWN_NAME})),
        client.get(reverse("admin:mcp_control_room_calllogentry_changelist")),
    ):
        html = page.content.decode()
        assert "made/up" not in html
        assert len(re.findall(r"<\w", html)) <= MAX_ELEMENTS

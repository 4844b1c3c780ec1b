"""Calls with known durations, through the pipeline in both eras: the page has the same numbers."""

import pytest
from asgiref.sync import async_to_sync
from django.urls import reverse

from mcp_django import Server, ToolError
from mcp_django.contrib.control_room.recording import record_queue
from mcp_django.contrib.control_room.recording.recorder import CallRecorder
from mcp_django.observability import current_call
from tests.contrib.control_room.conftest import make_caller
from tests.contrib.control_room.pages.test_room import ROOM, read_rows
from tests.contrib.control_room.test_record_admin import log_in
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient

pytestmark = pytest.mark.django_db
ERAS = {"ada": HANDSHAKE, "bob": STATELESS}


END_SECONDS = 1000.0
"""Time at which all calls end. Tools set the start."""


async def make_known_calls(server: Server) -> None:
    """Make 1,000 calls of 1 to 1,000 ms: half of them in each era, every 50th fails."""

    @server.tool
    async def spend(milliseconds: int) -> str:
        call = current_call()
        assert call is not None
        call.started_at = END_SECONDS - milliseconds / 1000
        if not milliseconds % 50:
            raise ToolError("Spent in vain")
        return "spent"

    clients = [PipelineClient(server, make_caller(name), version) for name, version in ERAS.items()]
    for milliseconds in range(1, 1001):
        await clients[milliseconds % 2].call("spend", milliseconds=milliseconds)


def test_known_calls_of_both_eras_equal_the_page(
    server: Server, recorder: CallRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_queue, "perf_counter", lambda: END_SECONDS)
    async_to_sync(make_known_calls)(server)
    recorder.flush()
    browser = log_in("view_controlroom")
    page = browser.get(reverse(ROOM)).content.decode().replace("\N{NO-BREAK SPACE}", " ")
    [(name, _server, count, failed, bugs, half, slowest, longest)] = read_rows(page, "tools")
    assert (name, count, failed, bugs, longest) == ("spend", "1,000", "20 (2.0 %)", "0", "1.0 s")
    assert 362 < float(half.split()[0]) <= 512
    assert 724 < float(slowest.split()[0]) <= 1024
    # Clients without a session are listed as well.
    assert [row[2:4] for row in read_rows(page, "callers")] == [["without session", "500"]] * 2

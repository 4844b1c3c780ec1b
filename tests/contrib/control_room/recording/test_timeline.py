"""Waits of calls and rounds of conversations in the rows of calls."""

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from mcp_django import Context, Server
from mcp_django.contrib.control_room.models import CallLogEntry
from mcp_django.contrib.control_room.recording.recorder import CallRecorder
from mcp_django.contrib.control_room.recording.timeline import build_timeline, decode_timeline
from mcp_django.server.calls.outcome import MAX_WAITS, REMOTE_PREFIX, THREAD, CallRecord, Wait
from tests.contrib.control_room.conftest import BlockingClient, make_caller
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept


def make_wait(cause: str, start: float, end: float | None, key: str | None = None) -> Wait:
    wait = Wait(cause, key)
    wait.start, wait.end = start, end
    return wait


def test_a_record_names_the_latest_wait_that_goes_on_and_bounds_what_it_keeps() -> None:
    record = CallRecord()
    assert record.waits_for is None
    first, second = record.start_wait(THREAD), record.start_wait("ping")
    assert record.waits_for == "ping"
    record.end_wait(second)
    assert record.waits_for == THREAD
    record.end_wait(first)
    assert record.waits_for is None
    for _ in range(MAX_WAITS):
        with record.wait(f"{REMOTE_PREFIX}wiki"):
            assert record.waits_for == "server:wiki"
    assert (len(record.waits), record.wait_count) == (MAX_WAITS, MAX_WAITS + 2)
    assert build_timeline(record, 0.0, 1.0, ()).hidden == 2
    assert CallRecord().waits == []


def test_waits_at_the_same_time_count_once_and_end_with_the_call() -> None:
    record = CallRecord()
    record.waits = [make_wait("a", 10.1, 10.3), make_wait("b", 10.2, 10.4), make_wait("c", 10.9, None)]
    record.wait_count = 3
    timeline = build_timeline(record, 10.0, 1.0, ())
    assert timeline.waited_milliseconds == pytest.approx(400)
    assert [(wait.start, wait.end) for wait in timeline.waits] == [
        pytest.approx(times) for times in ((100, 300), (200, 400), (900, 1000))
    ]
    assert decode_timeline(timeline.encode()) == timeline


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"waits": [[1]], "hidden": 0}', '{"waits": 3, "hidden": 0}'])
def test_a_damaged_timeline_is_empty(text: str) -> None:
    assert decode_timeline(text).waits == ()


@pytest.fixture
def asking(server: Server) -> Server:
    """The server with a tool that asks twice."""

    @server.tool
    async def order(ctx: Context, secret: str = "") -> str:
        """Order."""
        first = await ctx.elicit("Which country?", str, key="country")
        second = await ctx.elicit("Why?", str, key=f"why-{secret}")
        return f"{first} {second}"

    return server


def place_order(server: Server, version: str) -> None:
    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        return accept(value="Chad")

    client = PipelineClient(server, version=version, principal=make_caller(), answer=answer)
    async_to_sync(client.call)("order", secret="swordfish")


def test_the_rounds_of_a_call_share_a_conversation(
    asking: Server, recorder: CallRecorder, change: Callable[..., None]
) -> None:
    change(TOOLS={"order": {"QUESTIONS": ["country"]}})
    recorder.queue.forget_settings()
    place_order(asking, STATELESS)
    place_order(asking, STATELESS)
    recorder.flush()

    rows = list(CallLogEntry.objects.order_by("pk"))
    assert [(row.outcome, row.round) for row in rows] == [("input_required", 1), ("input_required", 2), ("ok", 3)] * 2
    first, second = {row.conversation for row in rows[:3]}, {row.conversation for row in rows[3:]}
    assert len(first) == len(second) == 1
    assert not first & second
    asked = [[(wait.cause, wait.key) for wait in decode_timeline(row.timeline).waits] for row in rows[:3]]
    assert asked == [[("elicitation/create", "country")], [("elicitation/create", "")], []]
    assert "swordfish" not in repr(list(CallLogEntry.objects.values()))


def test_a_call_of_a_session_asks_within_one_row(asking: Server, recorder: CallRecorder) -> None:
    place_order(asking, HANDSHAKE)
    recorder.flush()
    row = CallLogEntry.objects.get()
    assert (row.outcome, row.conversation, row.round) == ("ok", "", None)
    waits = decode_timeline(row.timeline).waits
    assert [wait.cause for wait in waits] == ["elicitation/create"] * 2
    assert 0 <= waits[0].start <= waits[0].end <= waits[1].start <= waits[1].end <= row.milliseconds
    assert row.waited_milliseconds == pytest.approx(sum(wait.end - wait.start for wait in waits), abs=0.01)


def test_a_selection_without_questions_keeps_no_rounds(
    asking: Server, recorder: CallRecorder, change: Callable[..., None]
) -> None:
    change(CALLS=["failed"])
    recorder.queue.forget_settings()
    place_order(asking, STATELESS)
    place_order(asking, HANDSHAKE)
    recorder.flush()
    assert not CallLogEntry.objects.exists()


def test_a_row_has_the_sizes_the_transport_and_the_acting_user(
    server: Server, recorder: CallRecorder, django_user_model: Any
) -> None:
    ada = django_user_model.objects.create(username="ada")
    operator = django_user_model.objects.create(username="operator")
    caller = make_caller(user=ada, actor=operator)
    BlockingClient(server, caller).call("fail")
    recorder.flush()
    row = CallLogEntry.objects.get()
    assert (row.user_key, row.actor_key) == (str(ada.pk), str(operator.pk))
    assert (row.transport, row.request_bytes, row.waited_milliseconds, row.timeline) == ("process", None, 0, "")
    assert row.response_bytes

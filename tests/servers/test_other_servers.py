"""The other servers keep the same contract as the two that are tested in depth: one test goes through it on each."""

import pytest

from tests.servers import test_disconnects as disconnects
from tests.servers import test_legacy_sse as legacy_sse
from tests.servers import test_listening as listening
from tests.servers import test_running_sql as running_sql
from tests.servers.conftest import ServerPool
from tests.servers.harness import DOORS, MOST_DIFFERENT, SERVERS

CONTRACT = [
    disconnects.test_calls_are_answered_in_both_eras,
    disconnects.test_a_disconnect_cancels_a_stateless_call,
    disconnects.test_a_disconnect_detaches_a_handshake_call,
    disconnects.test_a_question_can_be_answered_after_a_disconnect,
    disconnects.test_a_cancelled_handshake_call_stops_and_is_not_answered,
    running_sql.test_a_disconnect_interrupts_the_sql_of_a_stateless_call,
    running_sql.test_cancelling_interrupts_the_sql_of_a_handshake_call,
    listening.test_a_disconnect_from_a_silent_stream_is_noticed,
    legacy_sse.test_calls_and_a_question_are_answered_on_the_stream,
    legacy_sse.test_a_disconnect_ends_the_session_and_cancels_its_calls,
]
"""Shutdown and sockets have such a contract in their own modules, and `test_matrix` adds the Django view."""


@pytest.mark.parametrize("kind", [kind for kind in SERVERS if kind not in MOST_DIFFERENT])
def test_calls_streams_and_disconnects(kind: str, pool: ServerPool) -> None:
    server = pool.get(kind)
    for check in CONTRACT:
        check(server, DOORS["asgi"])

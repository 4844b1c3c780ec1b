"""The process of a peer that makes one check after another."""

import sys
from collections.abc import Iterator

import pytest

from tests.clients.peer_process import Failed, PeerProcess

SCRIPT = """
import json, os, sys
for line in sys.stdin:
    (word,) = json.loads(line)
    if word == "exit":
        sys.exit()
    print(json.dumps({"failed": "no luck"} if word == "fail" else {"said": str(os.getpid())}), flush=True)
"""
COMMAND = [sys.executable, "-ISc", SCRIPT]


@pytest.fixture
def process() -> Iterator[PeerProcess]:
    """A process that is stopped after the test."""
    found = PeerProcess()
    yield found
    found.stop()


def test_checks_share_a_process_until_one_fails(process: PeerProcess) -> None:
    first = process.check(COMMAND, "say")
    assert process.check(COMMAND, "say") == first
    with pytest.raises(Failed, match="no luck"):
        process.check(COMMAND, "fail")
    assert process.check(COMMAND, "say") != first


def test_a_process_that_exits_has_failed_and_is_replaced(process: PeerProcess) -> None:
    with pytest.raises(Failed, match="it ended"):
        process.check(COMMAND, "exit")
    assert process.check(COMMAND, "say")

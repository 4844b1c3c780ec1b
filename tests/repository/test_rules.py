"""Rules for the tests themselves."""

import ast
from collections.abc import Iterator

import pytest

from tests.repository.pages import ROOT, name_of

# What is served or started by tests needs real time, and so do these folders.
MAY_SLEEP = (
    "tests/clients/",
    "tests/composed/",
    "tests/conformance/",
    "tests/load/",
    "tests/management/stdio_project.py",
    "tests/runtime/serving.py",
    "tests/servers/",
    "tests/support/",
    "tests/workers/",
)
# Exceptions for now.
STILL_SLEEP = (
    "tests/client/test_answering.py",
    "tests/client/test_calls.py",
    "tests/client/test_handlers.py",
    "tests/client/test_health.py",
    "tests/client/test_http.py",
    "tests/client/test_our_server.py",
    "tests/client/test_stdio.py",
    "tests/interaction/odd.py",
    "tests/interaction/test_gthread.py",
    "tests/interaction/test_limits.py",
    "tests/oauth/test_documents.py",
    "tests/runtime/test_executor.py",
    "tests/runtime/test_feed.py",
    "tests/runtime/test_feed_redis.py",
    "tests/runtime/test_interrupt.py",
    "tests/runtime/test_lane_load.py",
    "tests/runtime/test_posts.py",
    "tests/runtime/test_rings.py",
    "tests/runtime/test_session_news.py",
    "tests/runtime/test_transactions.py",
    "tests/runtime/test_visits.py",
    "tests/server/test_tool_stream.py",
    "tests/transports/duplex/test_messages.py",
    "tests/transports/legacy_sse/client.py",
    "tests/transports/test_stdio.py",
    "tests/transports/test_work_after_the_answer.py",
)


def sleeps(source: str) -> Iterator[int]:
    """Yield the lines on which a program sleeps for longer than one turn of the event loop."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or ast.unparse(node.func).split(".")[-1] != "sleep":
            continue
        if [ast.unparse(argument) for argument in node.args] != ["0"]:
            yield node.lineno


def test_tests_do_not_sleep() -> None:
    found = [
        f"{name}:{line}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not (name := name_of(path)).startswith((*MAY_SLEEP, *STILL_SLEEP))
        if "sleep(" in (source := path.read_text(encoding="utf-8"))
        for line in sleeps(source)
    ]
    assert not found, "wait for an event, or advance the `clock`:\n" + "\n".join(found)


def test_sleeping_is_noticed(subtests: pytest.Subtests) -> None:
    for source, lines in (
        ("await asyncio.sleep(0)", []),
        ("await asyncio.sleep(0.01)", [1]),
        ("\nsleep(seconds)", [2]),
        ("time.sleep(1); time.sleep(0)", [1]),
        ("sleep(seconds=0)", [1]),
        ("cursor.execute('SELECT pg_sleep(1)')", []),
    ):
        with subtests.test(source=source):
            assert list(sleeps(source)) == lines

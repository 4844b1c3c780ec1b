"""How the tests run: `async def` tests on the test's own thread and connection, and a word about what is left out."""

import inspect
import os
from typing import Any

import pytest
from asgiref.sync import async_to_sync

TAKES_LONG = (
    "tests/load/",
    "tests/workers/",
    "tests/servers/",
    "tests/clients/",
    "tests/management/test_mcp_stdio",
    "tests/project/",
)
"""Where tests start processes, and wait for them."""
LEFT_OUT = {
    "PostgreSQL": ("MCP_TEST_POSTGRES", "set it to 1 for 127.0.0.1:5432, or to a postgres:// URL"),
    "Redis": ("MCP_TEST_REDIS", "set it to 1 for 127.0.0.1:6379, or to a redis:// URL"),
    "most of the load tests": ("MCP_TEST_LOAD", "set it to 1, and they run on every server"),
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first: of several processes none is left alone with it at the end, as long as files are
    given out in this order (`--no-loadscope-reorder`).
    """
    items.sort(key=lambda item: not item.nodeid.startswith(TAKES_LONG))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine as Django's TestCase does: what is thread-sensitive lands on the test's thread and connection.

    On a thread of its own the ORM would not see the test's transaction, and would leave rows behind.
    """
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    async_to_sync(function)(**{name: pyfuncitem.funcargs[name] for name in names})
    return True


@pytest.fixture(autouse=True)
def _nothing_counted() -> None:
    """No test is throttled for what others did."""
    from django.core.cache import cache

    cache.clear()


@pytest.fixture(autouse=True)
def _no_rules() -> None:
    """There are no policies until a test saves one: those of earlier tests are gone, and many have no database."""
    from mcp_django.auth.rulebook import NO_RULES, RULEBOOK  # once Django is set up

    RULEBOOK.assume(NO_RULES)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """A name without an address in it: processes that share the tests must call them the same."""
    return argname if " at 0x" in repr(val) else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what this run did without, so that a green run is not taken for more than it is."""
    for what, (variable, cure) in LEFT_OUT.items():
        if not os.environ.get(variable):
            terminalreporter.write_line(f"left out: {what} ({variable}: {cure})", yellow=True)
    if doors := os.environ.get("MCP_TEST_DOORS"):
        terminalreporter.write_line(f"left out: interaction tests through other doors than {doors}", yellow=True)

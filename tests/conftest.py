"""How the tests run: markers by folder, `async def` tests on the test's own thread and connection, and a summary of the
tests that a run left out.
"""

import asyncio
import contextvars
import gc
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.conf import settings
from django.db import connection
from django.urls import set_urlconf
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from pytest_django.plugin import DjangoDbBlocker

from tests.support.clock import Clock, clock
from tests.support.databases import create_test_database
from tests.support.failed_tests import FailedTests
from tests.support.pool_threads import UNFINISHED_FUNCTIONS
from tests.support.services import POSTGRES_URL
from tests.support.table_contents import restore_after_transactions

__all__ = ["clock"]
FOLDER_MARKERS = {
    "tests/browser/": ("browser",),
    "tests/clients/": ("integration", "postgres"),
    "tests/composed/": ("integration",),
    "tests/load/": ("integration", "load"),
    "tests/project/": ("integration",),
    "tests/servers/": ("integration",),
    "tests/workers/": ("integration", "workers", "postgres", "redis"),
}
"""Markers of all tests in a folder."""
VERSION_FOLDERS = (
    # Annotations, signatures, asyncio and threads are Python's.
    "tests/aio/",
    "tests/client/transports/test_sse.py",
    "tests/client/transports/test_stdio.py",
    "tests/logs/",
    "tests/runtime/",
    "tests/schema/",
    "tests/server/",
    "tests/transports/",
    # Columns, forms, pages, checks, commands, mail and tasks are Django's.
    "tests/admin/",
    "tests/checks/",
    "tests/contrib/control_room/",
    "tests/contrib/rest/",
    "tests/contrib/tasks/",
    "tests/forms/",
    "tests/management/",
    "tests/models/",
    "tests/orm/",
    "tests/wiring/",
    # A whole server, once over each transport.
    "tests/interaction/test_transports.py",
    "tests/interaction/test_wsgi.py",
)
"""Folders and files whose tests depend on the version of Python or Django, as far as they need no service.

The others test rules of the protocol, or depend on versions only through the modules that these cover.
"""
SERVICE_MARKERS = ("load", "workers", "browser", "postgres", "redis", "integration", "slow")
"""Markers that the default run leaves out. The first of them that a test has counts it."""
SLOW_FIRST = ("load", "workers", "integration", "browser")
"""Markers whose tests start first, so that at the end no process is left alone with one of them."""
_left_out: Counter[str] = Counter()

# The same examples in every run, and no time limit for one, so that a property fails in every run or in none.
hypothesis_settings.register_profile(
    "tests", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("tests")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark tests by their folder, before others choose and sort them. Then let those that take long come first: files
    are shared out in this order (`--no-loadscope-reorder`).
    """
    for item in items:
        for folder, markers in FOLDER_MARKERS.items():
            if item.nodeid.startswith(folder):
                for marker in markers:
                    item.add_marker(marker)
        if item.nodeid.startswith(VERSION_FOLDERS) and not any(map(item.get_closest_marker, SERVICE_MARKERS)):
            item.add_marker("versions")
    yield
    items.sort(key=lambda item: not any(item.get_closest_marker(marker) for marker in SLOW_FIRST))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Collect the tests without the garbage collector, which would look at the growing heap again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no other modules for the tests that depend on versions."""
    if config.option.markexpr != "versions":
        return None
    name = collection_path.relative_to(config.rootpath).as_posix() + "/" * collection_path.is_dir()
    return None if any(name.startswith(one) or one.startswith(name) for one in VERSION_FOLDERS) else True


def pytest_collection_finish() -> None:
    """Take the modules and tests out of the garbage collector's sight.

    It then runs often and quickly, so that servers of earlier tests, which lie in cycles, no longer receive signals.
    """
    gc.collect()
    gc.freeze()
    gc.collect()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the tests that the marker expression leaves out."""
    for item in items:
        names = {mark.name for mark in item.iter_markers()}
        for marker in SERVICE_MARKERS:
            if marker in names:
                _left_out[marker] += 1
                break


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine as Django's TestCase does: thread-sensitive code runs on the test's thread and connection.

    On a thread of its own the ORM would not see the test's transaction, and would leave rows behind.
    """
    function = pyfuncitem.obj
    if not iscoroutinefunction(function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    clock = pyfuncitem.funcargs.get("clock")

    async def run(**arguments: Any) -> None:
        if isinstance(clock, Clock):
            clock.control(asyncio.get_running_loop())
        await function(**arguments)

    # In a context of its own: asgiref copies all context variables back, and would add up those of all tests.
    contextvars.copy_context().run(async_to_sync(run), **{name: pyfuncitem.funcargs[name] for name in names})
    return True


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest, django_test_environment: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """Copy the migrated database instead of migrating one in each process (pytest-django's fixture of this name)."""
    worker = getattr(request.config, "workerinput", {}).get("workerid", "")
    with django_db_blocker.unblock():
        drop = create_test_database(POSTGRES_URL, f"_{worker}" if worker else "")
        restore_after_transactions()
    yield
    with django_db_blocker.unblock():
        drop()


@pytest.fixture(scope="session", autouse=True)
def _database_features(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Ask for the features of the database before any test: system checks of Django 6.1 do, also without a database."""
    with django_db_blocker.unblock():
        assert connection.features.supports_json_field


@pytest.fixture(scope="session", autouse=True)
def _no_records(django_db_setup: None) -> None:
    """Calls are recorded in the tests of the recorder alone: its thread would write beside their transactions."""
    from mcp_django import wiring  # once Django is set up
    from mcp_django.contrib.control_room.recording.recorder import RECORDER
    from mcp_django.runtime.calls.observer import remove_outcome_recorder

    remove_outcome_recorder(RECORDER.queue.record)
    wiring.PROCESS.lifecycle.loop_callbacks.discard(RECORDER.start_reports)


@pytest.fixture(scope="session", autouse=True)
def _no_maintenance(django_db_setup: None) -> None:
    """Tasks are maintained in their own tests alone: the loops of other tests would read rows beside them."""
    from mcp_django import wiring  # once Django is set up
    from mcp_django.contrib.tasks.upkeep import start_maintenance

    wiring.get_services().lifecycle.loop_callbacks.discard(start_maintenance)


@pytest.fixture(autouse=True)
def _django_set_urlconf(request: pytest.FixtureRequest) -> Iterator[None]:
    """Serve the URLs of the mark `urls` (pytest-django's fixture of this name), and keep Django's caches of URLs.

    Each URLconf has its own entry in them, and to fill one takes longer than most tests.
    """
    marker = request.node.get_closest_marker("urls")
    if marker is None:
        yield
        return
    before = settings.ROOT_URLCONF
    settings.ROOT_URLCONF = marker.args[0]
    set_urlconf(None)
    yield
    settings.ROOT_URLCONF = before
    set_urlconf(None)


@pytest.fixture(scope="session", autouse=True)
def _functions_of_threads_counted() -> None:
    """Count the functions of pool threads, for the fixture below."""
    UNFINISHED_FUNCTIONS.start()


@pytest.fixture(autouse=True)
def _threads_finished(request: pytest.FixtureRequest, _django_db_marker: None) -> Iterator[None]:
    """Let pool threads finish before a test's tables are emptied.

    A statement on their connections and TRUNCATE can wait for each other. PostgreSQL ends one of them then: a deadlock.
    """
    if "transactional_db" in request.fixturenames:
        request.getfixturevalue("transactional_db")  # so that it is torn down after this fixture
    yield
    marker = request.node.get_closest_marker("django_db")
    if "transactional_db" in request.fixturenames or (marker is not None and marker.kwargs.get("transaction")):
        UNFINISHED_FUNCTIONS.wait()


@pytest.fixture(autouse=True)
def _background_threads_ended() -> Iterator[None]:
    """Let no thread of a test outlive it: it would use the database and the log beside the next tests."""
    from tests.support.background_threads import get_background_threads, wait_for_end  # once Django is set up

    before = get_background_threads()
    yield
    if left := get_background_threads() - before:
        wait_for_end(left)


@pytest.fixture(autouse=True)
def _nothing_counted() -> None:
    """Reset the rates, so that no test is throttled by another one."""
    from django.core.cache import cache

    cache.clear()


@pytest.fixture(autouse=True)
def _no_rules() -> None:
    """There are no policies until a test saves one: those of earlier tests are gone, and many have no database."""
    from mcp_django.auth.authorization.rule_cache import NO_RULES, RULE_CACHE  # once Django is set up

    RULE_CACHE.set_rules(NO_RULES)


def pytest_configure(config: pytest.Config) -> None:
    """Write the names of failed tests to the file that the environment names, for the last lines of a long run."""
    path = os.environ.get("MCP_TEST_FAILURES")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailedTests(Path(path)))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report the tests that this worker process left out to the controller."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take the counts of a worker process. All of them collect the same tests."""
    _left_out.update(Counter(getattr(node, "workeroutput", {}).get("left_out", {})) - _left_out)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report the tests that this run left out, and the command that runs them."""
    if _left_out:
        counts = ", ".join(f"{count} {marker}" for marker, count in sorted(_left_out.items()))
        terminalreporter.write_line(f"left out: {counts} (make test-all runs them)", yellow=True)

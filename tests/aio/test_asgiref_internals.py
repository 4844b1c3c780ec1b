"""The attributes of asgiref that the package uses although no documentation names them."""

import asyncio
import contextvars
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from threading import local
from typing import Any
from weakref import WeakKeyDictionary

from asgiref import sync
from asgiref.current_thread_executor import CurrentThreadExecutor
from asgiref.sync import AsyncToSync, SyncToAsync, async_to_sync, sync_to_async

from mcp_django.aio import asgiref_internals as internals

TRIED_VERSIONS = ("3.13",)
"""Versions of asgiref with which the tests of threads passed."""


class CountingExecutor(ThreadPoolExecutor):
    """Executor with one thread that counts its functions."""

    def __init__(self) -> None:
        super().__init__(1)
        self.count = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        return super().submit(fn, *args, **kwargs)


def test_the_installed_version_was_tried() -> None:
    installed = ".".join(version("asgiref").split(".")[:2])
    assert installed in TRIED_VERSIONS, "run tests/runtime and tests/transports with it, then add it here"


def test_each_attribute_has_the_expected_kind() -> None:
    assert isinstance(SyncToAsync.thread_sensitive_context, contextvars.ContextVar)
    assert isinstance(SyncToAsync.deadlock_context, contextvars.ContextVar)
    assert isinstance(SyncToAsync.context_to_thread_executor, WeakKeyDictionary)
    assert isinstance(SyncToAsync.threadlocal, local)
    assert isinstance(AsyncToSync.async_single_thread_context, contextvars.ContextVar)
    assert isinstance(AsyncToSync.loop_thread_executors, dict)
    assert hasattr(AsyncToSync.executors, "__dict__")
    assert callable(sync._restore_context)


def test_thread_sensitive_code_runs_on_the_executor_of_the_context() -> None:
    async def main() -> None:
        executor = CountingExecutor()
        context = internals.ExecutorContext(executor)
        token = internals.set_executor_context(context)
        assert internals.find_executor_context() is context
        assert context not in SyncToAsync.context_to_thread_executor, "not before it is needed"
        assert await sync_to_async(lambda: "done")() == "done"
        assert executor.count == 1
        internals.reset_executor_context(token)
        assert internals.find_executor_context() is None
        executor.shutdown()

    asyncio.run(main())


def test_a_loop_of_async_to_sync_is_recognized() -> None:
    async def is_bridge() -> bool:
        return internals.is_async_to_sync_loop()

    assert async_to_sync(is_bridge)()
    assert not asyncio.run(is_bridge())


def test_a_copied_context_loses_the_executors_of_its_request() -> None:
    async def main() -> None:
        SyncToAsync.deadlock_context.set(True)
        context = contextvars.copy_context()
        context.run(internals.detach_from_request)
        assert context[SyncToAsync.deadlock_context] is False
        assert context[SyncToAsync.thread_sensitive_context] is None

    asyncio.run(main())


def test_values_of_another_context_are_moved() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    other = contextvars.Context()
    other.run(variable.set, "moved")
    here = contextvars.Context()
    here.run(internals.move_context, other)
    assert here[variable] == "moved"


def test_the_thread_keeps_no_loop() -> None:
    SyncToAsync.threadlocal.main_event_loop = "loop"
    internals.forget_loop_of_thread()
    assert vars(SyncToAsync.threadlocal) == {}


def test_the_executor_of_a_waiting_thread_is_asgirefs() -> None:
    async def find() -> type:
        return type(AsyncToSync.loop_thread_executors[asyncio.get_running_loop()])

    assert issubclass(async_to_sync(find)(), CurrentThreadExecutor)

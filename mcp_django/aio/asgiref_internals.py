"""All uses of asgiref's undocumented attributes, which a new version may change.

`tests/aio/test_asgiref_internals.py` names each attribute and the versions with which this module was tried. The
decision record D15 in `docs/design/decisions.md` has the reasons.
"""

import asyncio
import contextvars
from concurrent.futures import Executor
from contextvars import ContextVar, Token
from typing import Any, Final

from asgiref.sync import AsyncToSync, SyncToAsync, ThreadSensitiveContext, _restore_context

_THREAD_CONTEXT: Final[ContextVar[Any]] = SyncToAsync.thread_sensitive_context


class ExecutorContext(ThreadSensitiveContext):
    """Context whose thread-sensitive code runs on an executor of ours.

    `set_executor_context` sets it directly, because entering it the documented way costs four times as much. This also
    hides the executor of a surrounding `async_to_sync`. A call in a context of its own has none; elsewhere it is the
    correct executor.
    """

    def __init__(self, executor: Executor) -> None:
        super().__init__()
        self.executor = executor

    def __bool__(self) -> bool:
        """Register the executor and return True.

        asgiref evaluates this before it searches the executor of the context. Registering it only then halves the cost
        of calls that never need a thread, which are the majority.
        """
        executors = SyncToAsync.context_to_thread_executor
        if self not in executors:
            executors[self] = self.executor
        return True


def set_executor_context(context: ExecutorContext) -> Token[Any]:
    """Run thread-sensitive code of the current context on the executor of `context`."""
    return _THREAD_CONTEXT.set(context)


def reset_executor_context(token: Token[Any]) -> None:
    """Restore the executor of before. Raises ValueError in another context."""
    _THREAD_CONTEXT.reset(token)


def find_executor_context() -> ExecutorContext | None:
    """Return the context whose executor runs thread-sensitive code; None if it is not ours."""
    context = _THREAD_CONTEXT.get(None)
    return context if type(context) is ExecutorContext else None


def clear_executor(context: contextvars.Context) -> None:
    """Remove the executor for thread-sensitive code from a context."""
    context.run(_THREAD_CONTEXT.set, None)


def is_async_to_sync_loop() -> bool:
    """Return True if the running loop belongs to `async_to_sync`.

    Such a loop ends with the code that waits for it.
    """
    loops = AsyncToSync.loop_thread_executors
    return bool(loops) and asyncio.get_running_loop() in loops


def forget_loop_of_thread() -> None:
    """Discard the loop that asgiref stored in this thread, which would keep it alive."""
    vars(SyncToAsync.threadlocal).clear()


def detach_from_request() -> None:
    """Remove asgiref's executors of the request, which end with it, from the current context."""
    unset: Any = None
    _THREAD_CONTEXT.set(unset)
    AsyncToSync.async_single_thread_context.set(unset)
    SyncToAsync.deadlock_context.set(False)
    # A loop may belong to one thread (WSGI, Django's tests), and sync middleware blocks that thread while it waits for
    # this view. Only its own executor can run work there. When the middleware has returned, asgiref falls back to the
    # other executor of the thread (CurrentThreadExecutor.submit).
    if asyncio.get_running_loop() not in AsyncToSync.loop_thread_executors:
        AsyncToSync.executors.current = None


def move_context(context: contextvars.Context) -> None:
    """Set the values of `context` in the current context, which may be the same, on this thread.

    An `asgiref.local.Local`, such as Django's active language, hides the values that another thread has set, until they
    are moved. Asgiref moves them only when it switches between threads itself.
    """
    _restore_context(context)

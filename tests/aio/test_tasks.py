"""Tasks and timers in a clean context."""

import asyncio
import contextvars

import pytest

from mcp_django.aio.tasks import BackgroundTasks, call_threadsafe, start_task, start_timer

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="clean")


async def get_variable() -> str:
    return VARIABLE.get()


async def test_tasks_and_timers_run_in_a_clean_context() -> None:
    VARIABLE.set("of the caller")
    fired: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    start_timer(0, lambda: fired.set_result(VARIABLE.get()))
    assert await start_task(get_variable()) == "clean"
    assert await BackgroundTasks().spawn(get_variable()) == "clean"
    assert await fired == "clean"


async def test_a_task_can_have_a_copy_of_the_context_of_its_caller() -> None:
    VARIABLE.set("of the caller")
    assert await BackgroundTasks().spawn_in(None, get_variable()) == "of the caller"


async def test_ended_tasks_are_released_and_their_errors_reported() -> None:
    errors: list[BaseException] = []
    tasks = BackgroundTasks(on_error=errors.append)
    task = tasks.spawn(asyncio.Event().wait())
    assert list(tasks) == [task]

    async def fail() -> None:
        raise ValueError("of a task")

    with pytest.raises(ValueError, match="of a task"):
        await tasks.spawn(fail())
    tasks.cancel()
    await tasks.wait()
    assert task.cancelled()
    assert not tasks
    assert [type(error) for error in errors] == [ValueError]


async def test_a_thread_calls_a_function_on_a_loop_in_a_clean_context() -> None:
    VARIABLE.set("of the caller")
    called: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    assert await asyncio.to_thread(call_threadsafe, loop, lambda: called.set_result(VARIABLE.get()))
    assert await called == "clean"


def test_a_closed_loop_is_reported_to_the_thread_that_calls_on_it() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    assert not call_threadsafe(loop, print)

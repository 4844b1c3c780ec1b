"""Values that belong to one event loop each."""

import asyncio
import gc
import threading

from mcp_django.aio.loop_local import LoopLocal, find_running_loop


class Pool:
    """A value that can be referenced weakly, and compared by identity."""


async def test_the_value_is_created_once_for_the_running_loop() -> None:
    pools = LoopLocal(Pool)
    assert pools.find() is None
    pool = pools.get()
    assert pools.get() is pool
    assert pools.get(asyncio.get_running_loop()) is pool
    assert pools.items() == [(asyncio.get_running_loop(), pool)]


async def test_each_loop_has_its_own_value() -> None:
    pools = LoopLocal(Pool)
    pool = pools.get()

    async def get_pool() -> Pool:
        return pools.get()

    others: list[Pool] = []
    thread = threading.Thread(target=lambda: others.append(asyncio.run(get_pool())))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert others[0] is not pool


def test_the_value_ends_with_its_loop() -> None:
    pools = LoopLocal(Pool)
    loop = asyncio.new_event_loop()
    pools.get(loop)
    loop.close()
    assert len(pools) == 1
    del loop
    gc.collect()
    assert len(pools) == 0
    assert pools.items() == []


async def test_a_replaced_value_is_not_discarded() -> None:
    pools = LoopLocal(Pool)
    earlier = pools.get()
    assert pools.pop() is earlier
    assert pools.pop() is None
    later = pools.get()
    pools.discard(earlier)
    assert pools.find() is later
    pools.discard(later)
    assert pools.find() is None


async def test_the_running_loop_is_found_in_its_own_thread_only() -> None:
    assert find_running_loop() is asyncio.get_running_loop()
    assert await asyncio.to_thread(find_running_loop) is None

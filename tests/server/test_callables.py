"""Functions of a project: which ones are async."""

import functools
from collections.abc import Awaitable
from typing import Any

import pytest
from asgiref.sync import markcoroutinefunction

from mcp_django.server.callables import is_async


async def answer() -> int:
    return 1


def plain() -> int:
    return 1


def wrapped() -> Awaitable[int]:
    return answer()


class AsyncCall:
    async def __call__(self) -> int:
        return 1


class Wrapper:
    """A wrapper that marks itself, as Django's middleware classes do."""

    def __init__(self) -> None:
        markcoroutinefunction(self)

    def __call__(self) -> Awaitable[int]:
        return answer()


ASYNC: dict[str, Any] = {
    "a coroutine function": answer,
    "a partial": functools.partial(answer),
    "a callable object": AsyncCall(),
    "a marked function": markcoroutinefunction(wrapped),
    "a marked object": Wrapper(),
}


def test_async_functions_are_detected_in_each_form(subtests: pytest.Subtests) -> None:
    for name, function in ASYNC.items():
        with subtests.test(name):
            assert is_async(function)
    assert not is_async(plain)

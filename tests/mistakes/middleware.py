"""Middleware as it was written before there was async."""

from collections.abc import Callable
from typing import Any


class Stopwatch:
    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        return self.get_response(request)

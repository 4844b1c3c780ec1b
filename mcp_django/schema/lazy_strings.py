"""Evaluation of lazily translated texts independent of any request."""

import contextvars
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def call_in_default_language(make: Callable[..., T], *args: Any) -> T:
    """Call `make` in a clean context, without the language of a request.

    The texts of declarations are cached and served to all clients. A lazily translated text (`gettext_lazy`) must not
    depend on the first request, so it is evaluated in the project's own language.
    """
    return contextvars.Context().run(make, *args)

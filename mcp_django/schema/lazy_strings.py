"""Texts that are read once and shown to everybody."""

import contextvars
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def natively(make: Callable[..., T], *args: Any) -> T:
    """Call `make` as if nobody had asked: in a clean context, where no request's language is active.

    What declarations say is kept and served to everybody. A lazily translated text among it (`gettext_lazy`) must read
    the same whoever comes first, so it is read in the project's own language.
    """
    return contextvars.Context().run(make, *args)

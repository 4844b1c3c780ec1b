"""Preparation of a view's request by the project: `expose(view, prepare=…)`.

MIDDLEWARE and decorators of a router do not run for calls. A function of the project sets the values that the view
expects of them: a session, a tenant, the router. As a context manager, it also surrounds the view.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.module_loading import import_string

from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.primitives import is_async

Prepare = Callable[[HttpRequest], AbstractContextManager[Any] | None]
"""Function of the request; a returned context manager surrounds the view."""


def load_prepare(value: object, where: str) -> Prepare | None:
    """Return the function of the option `prepare`: a callable, a dotted path, or None.

    Raises:
        DeclarationError: it is not a function that can be called on a thread.
    """
    if isinstance(value, str):
        try:
            value = import_string(value)
        except ImportError as problem:
            raise DeclarationError(f"{where}: prepare={value!r} cannot be imported: {problem}") from problem
    if value is None:
        return None
    if not callable(value) or is_async(value):
        raise DeclarationError(f"{where}: prepare={value!r} is invalid; give a synchronous function of the request")
    prepare: Prepare = value
    return prepare


@contextlib.contextmanager
def prepare_request(prepare: Prepare | None, request: HttpRequest) -> Iterator[bool]:
    """Prepare a request; the value is True if a context manager surrounds the view.

    Raises:
        ImproperlyConfigured: the function returns another value than None and a context manager.
    """
    surrounding = None if prepare is None else prepare(request)
    if surrounding is None:
        yield False
        return
    if not isinstance(surrounding, AbstractContextManager):
        raise ImproperlyConfigured(f"prepare={prepare!r} returned {surrounding!r}; return None or a context manager")
    with surrounding:
        yield True

"""Savepoints around the values of a table, so that one test can go through all of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.cache import cache
from django.db import transaction


@contextmanager
def rolled_back() -> Iterator[None]:
    """Begin with an empty cache, and undo all changes to the database at the end."""
    cache.clear()
    block = transaction.atomic()
    block._from_testcase = True  # as in Django's TestCase: code that refuses to run in a transaction runs
    with block:
        yield
        transaction.set_rollback(True)

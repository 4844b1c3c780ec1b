"""Savepoints around the cases of one test."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction


@contextmanager
def rolled_back() -> Iterator[None]:
    """Undo all changes to the database at the end, so that cases of one test do not see each other's rows."""
    block = transaction.atomic()
    block._from_testcase = True  # as in Django's TestCase: code that refuses to run in a transaction runs
    with block:
        yield
        transaction.set_rollback(True)

"""The values of a table of attacks, each tried as if it were the first."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.cache import cache
from django.db import transaction


@contextmanager
def isolated() -> Iterator[None]:
    """Begin with an empty cache, and undo what the block writes to the database.

    A table then goes through one test, with a savepoint for each value instead of a test with its own set-up.
    """
    cache.clear()
    with transaction.atomic():
        yield
        transaction.set_rollback(True)

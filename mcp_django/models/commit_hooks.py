"""Functions that run when a transaction commits, with their errors in the log of this package.

`transaction.on_commit(..., robust=True)` is not enough. Without a transaction it runs the function at once and swallows
its error, so the caller never learns of the failure. And Django logs errors under the name of its database backend.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connections, transaction


@dataclass(frozen=True, slots=True, eq=False)
class CommitHook:
    """Function of a transaction that is called after its commit."""

    function: Callable[[], Any]
    logger: logging.Logger
    failure: str
    """Log message of an error: the action that failed, and its effect."""

    def __call__(self) -> None:
        try:
            self.function()
        except Exception:
            self.logger.exception(self.failure)


def call_on_commit(function: Callable[[], Any], *, using: str, logger: logging.Logger, failure: str) -> bool:
    """Call a function when the transaction on `using` commits, or now if there is no transaction.

    After a commit, errors are logged with the text `failure`: the transaction cannot fail any more, and later hooks
    have to run. Without a transaction, errors of the function are raised.

    Returns:
        False if autocommit is off. Commits are not detected then, and the function is not called.
    """
    connection = connections[using]
    if connection.in_atomic_block:
        transaction.on_commit(CommitHook(function, logger, failure), using=using, robust=True)
    elif connection.get_autocommit():
        function()
    else:
        return False
    return True

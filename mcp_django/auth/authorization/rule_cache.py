"""The rules of the admin as a process knows them: an immutable snapshot of the rows of `ToolPolicy` and `ScopeGrant`.

It is never older than `FRESH` seconds: who decides with it has it read anew then, which is one row, the mark, and the
rest only when the mark is another. Whoever saves a rule tells it, so that processes which follow the event log read it
at once (`forget`). What cannot be read lets nobody through.
"""

import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, router, transaction

from mcp_django.aio.clock import monotonic
from mcp_django.auth.authorization.scope_grants import NO_GRANTS, Grants, grants_of
from mcp_django.auth.authorization.tool_policies import NO_POLICIES, NOTHING, Asked, Policies
from mcp_django.models import ScopeGrant, StoredState, ToolPolicy
from mcp_django.models.stored.cache_version import RULES as MARK
from mcp_django.server.ports import Overloaded

logger = logging.getLogger("mcp_django.auth")

FRESH = 5.0
"""Seconds for which a snapshot is believed."""
KEPT = 4096
"""Tools of which is remembered what is asked."""

Run = Callable[..., Awaitable[Any]]


async def in_thread(fn: Callable[..., Any], /, *args: Any) -> Any:
    return await sync_to_async(fn)(*args)


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """What the rows said when they were read."""

    mark: str = ""
    """Another whenever any of them changed."""
    policies: Policies = NO_POLICIES
    grants: Grants = field(default_factory=lambda: NO_GRANTS)
    is_empty: bool = field(init=False)
    """Is nothing said about anything?"""
    _known: dict[tuple[str, str], Asked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_empty", not self.policies.rows and not self.grants)

    @property
    def asks_for_groups(self) -> bool:
        """Does any grant depend on the groups of users?"""
        return any(grant.groups for grant in self.grants.values())

    def of_tool(self, server: str, name: str) -> Asked:
        """What policies ask for a tool of a server."""
        if not self.policies.rows:
            return NOTHING
        found = self._known.get((server, name))
        if found is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            found = self._known[server, name] = self.policies.of_tool(server, name)
        return found


NO_RULES: Final = Rules()


class Rulebook:
    """The snapshot of one process."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._rules, self._until = NO_RULES, float("-inf")
        self._forgotten = 0
        self._has_read = False
        self._reading = threading.Lock()

    def now(self) -> Rules | None:
        """The snapshot, if it is fresh; None to `read` it. No I/O."""
        return self._rules if self._clock() < self._until else None

    def forget(self) -> None:
        """Something has changed: what is known is not believed any more."""
        self._forgotten += 1
        self._until = float("-inf")

    def forget_with(self, using: str) -> None:
        """`forget` now and when the transaction on a database ends, because until then others read the old rows."""
        self.forget()
        try:
            transaction.on_commit(self.forget, using=using, robust=True)
        except transaction.TransactionManagementError:
            pass  # manual transactions have no such hook

    def assume(self, rules: Rules) -> None:
        """Believe these until `forget` is called. For tests and scripts without a database."""
        self._rules, self._until = rules, float("inf")

    async def current(self, run: Run = in_thread) -> Rules:
        """The rules. `run` calls what may block; raises Overloaded when they cannot be read."""
        found = self.now()
        if found is None:
            found = await run(self.read)
        return found

    def read(self) -> Rules:
        """The rules, for threads. Raises Overloaded when they cannot be read."""
        with self._reading:
            found = self.now()
            if found is not None:
                return found  # who waited for the lock has it from whoever held it
            forgotten, began = self._forgotten, self._clock()
            rules = self._look()
            self._rules, self._has_read = rules, True
            if forgotten == self._forgotten:
                self._until = began + FRESH
            return rules

    def known(self) -> Rules:
        """The rules for a thread in the middle of something. Raises Overloaded.

        Inside a transaction a database may show rows as they were when that began, and rows that nobody else may ever
        see. What is read there is good for whoever asks, and is not kept.
        """
        found = self.now()
        if found is not None:
            return found
        using = router.db_for_write(StoredState)
        if not connections[using].in_atomic_block:
            return self.read()
        # In a savepoint, because the transaction has to go on where the tables are not there yet.
        with transaction.atomic(using=using):
            return self._look()

    def _look(self) -> Rules:
        try:
            return self._read()
        except Exception as problem:
            logger.error("The policies cannot be read, so that nothing is decided: %r", problem)
            raise Overloaded("The server cannot decide who may do what at the moment; try again later") from None

    def _read(self) -> Rules:
        """The mark is read first: rows that are newer than it are read again next time."""
        try:
            mark = StoredState.objects.mark(MARK)
            if self._has_read and mark == self._rules.mark:
                return self._rules
            return Rules(mark, Policies.of(ToolPolicy.objects.all()), grants_of(ScopeGrant.objects.all()))
        except DatabaseError:
            if _is_migrated():
                raise
            # Code is often deployed before its migrations. Nobody can have written rules where there are no tables.
            return NO_RULES
        except ImproperlyConfigured:
            if connections[router.db_for_write(StoredState)].vendor == "unknown":
                return NO_RULES  # a project without a database
            raise


def _is_migrated() -> bool:
    connection = connections[router.db_for_write(ToolPolicy)]
    return ToolPolicy._meta.db_table in connection.introspection.table_names()


RULEBOOK: Final = Rulebook()
"""That of this process."""

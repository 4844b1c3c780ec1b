"""Process-wide cache of the administrator's rules.

It holds an immutable snapshot of the rows of `ToolPolicy` and `ScopeGrant`. A snapshot is at most `MAX_AGE_SECONDS`
old. Refreshing it reads one version row; the rules are reloaded only if the version changed. Saving a rule publishes an
event, and processes that follow the event log call `invalidate`. While the rules cannot be read, every request is
refused.
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
"""Seconds for which a snapshot is used without reading its version again."""
KEPT = 4096
"""Maximum number of tools whose requirements are cached."""

Run = Callable[..., Awaitable[Any]]


async def in_thread(fn: Callable[..., Any], /, *args: Any) -> Any:
    return await sync_to_async(fn)(*args)


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """The rules of one reading of the rows."""

    mark: str = ""
    """Version of the rules; it changes with every change of a row."""
    policies: Policies = NO_POLICIES
    grants: Grants = field(default_factory=lambda: NO_GRANTS)
    is_empty: bool = field(init=False)
    """True without any rules."""
    _known: dict[tuple[str, str], Asked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_empty", not self.policies.rows and not self.grants)

    @property
    def asks_for_groups(self) -> bool:
        """True if a grant depends on groups of users."""
        return any(grant.groups for grant in self.grants.values())

    def of_tool(self, server: str, name: str) -> Asked:
        """Return the requirements of the policies for a tool of a server."""
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
    """Cache of the current snapshot, one for each process."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._rules, self._until = NO_RULES, float("-inf")
        self._forgotten = 0
        self._has_read = False
        self._reading = threading.Lock()

    def now(self) -> Rules | None:
        """Return the snapshot if it is fresh, else None. No I/O."""
        return self._rules if self._clock() < self._until else None

    def forget(self) -> None:
        """Invalidate the snapshot, because a rule has changed."""
        self._forgotten += 1
        self._until = float("-inf")

    def forget_with(self, using: str) -> None:
        """Invalidate the snapshot now and at the end of the transaction on `using`.

        Until then other connections read the old rows.
        """
        self.forget()
        try:
            transaction.on_commit(self.forget, using=using, robust=True)
        except transaction.TransactionManagementError:
            pass  # manual transactions have no such hook

    def assume(self, rules: Rules) -> None:
        """Use `rules` until `invalidate` is called.

        For tests and scripts without a database.
        """
        self._rules, self._until = rules, float("inf")

    async def current(self, run: Run = in_thread) -> Rules:
        """Return the rules. `run` calls blocking functions.

        Raises:
            Overloaded: the rules cannot be read.
        """
        found = self.now()
        if found is None:
            found = await run(self.read)
        return found

    def read(self) -> Rules:
        """Return the rules and refresh the snapshot. Blocks.

        Raises:
            Overloaded: the rules cannot be read.
        """
        with self._reading:
            found = self.now()
            if found is not None:
                return found  # another thread has loaded it while this one waited for the lock
            forgotten, began = self._forgotten, self._clock()
            rules = self._look()
            self._rules, self._has_read = rules, True
            if forgotten == self._forgotten:
                self._until = began + FRESH
            return rules

    def known(self) -> Rules:
        """Return the rules, also inside a transaction. Blocks.

        Inside a transaction a database may return rows of its beginning, or rows that are never committed. Rules that
        are read there are returned and not cached.

        Raises:
            Overloaded: the rules cannot be read.
        """
        found = self.now()
        if found is not None:
            return found
        using = router.db_for_write(StoredState)
        if not connections[using].in_atomic_block:
            return self.read()
        # A savepoint, because the transaction has to continue where the tables do not exist yet.
        with transaction.atomic(using=using):
            return self._look()

    def _look(self) -> Rules:
        try:
            return self._read()
        except Exception as problem:
            logger.error("Permission rules cannot be read; requests are refused: %r", problem)
            raise Overloaded("Permissions cannot be checked at the moment; try again later") from None

    def _read(self) -> Rules:
        """Read the version first: rows that are newer than it are read again next time."""
        try:
            mark = StoredState.objects.mark(MARK)
            if self._has_read and mark == self._rules.mark:
                return self._rules
            return Rules(mark, Policies.of(ToolPolicy.objects.all()), grants_of(ScopeGrant.objects.all()))
        except DatabaseError:
            if _is_migrated():
                raise
            # Code is often deployed before its migrations. Missing tables mean an empty rule set.
            return NO_RULES
        except ImproperlyConfigured:
            if connections[router.db_for_write(StoredState)].vendor == "unknown":
                return NO_RULES  # a project without a database
            raise


def _is_migrated() -> bool:
    connection = connections[router.db_for_write(ToolPolicy)]
    return ToolPolicy._meta.db_table in connection.introspection.table_names()


RULEBOOK: Final = Rulebook()
"""The rule cache of this process."""

"""Administrator's rules: compiled from their rows, and cached by each process.

A scope with a grant is held only by the users and clients that the grant names, and only if it was delegated to them.
A scope without one is held by every client that it was delegated to. The requirements of all matching tool policies
apply.

The cache holds an immutable snapshot of the rows of `ToolPolicy` and `ScopeGrant`. A snapshot is at most
`MAX_AGE_SECONDS` old. Refreshing it reads one version row; the rules are reloaded only if the version changed. Saving a
rule publishes an event, and processes that follow the event log call `invalidate`. While the rules cannot be read,
every request is refused.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import DatabaseError, connections, router, transaction

from mcp_django.aio.clock import monotonic
from mcp_django.auth.principal import Run, get_user_key, run_in_thread
from mcp_django.models import ScopeGrant, StoredState, ToolPolicy
from mcp_django.models.commit_hooks import call_on_commit
from mcp_django.models.rows import RULES_PK
from mcp_django.models.rules import check_names
from mcp_django.models.token import check_scopes
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.base import Rate

logger = get_logger("mcp_django.auth")

MAX_AGE_SECONDS = 5.0
"""Seconds for which a snapshot is used without reading its version again."""
MAX_CACHED_TOOLS = 4096
"""Maximum number of tools whose requirements are cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeGrantRule:
    """The holders of one scope."""

    groups: frozenset[str] = frozenset()
    """Groups whose users may hold it."""
    users: frozenset[str] = frozenset()
    """Primary keys of further users who may hold it. Without groups and users, all users may."""
    clients: tuple[str, ...] = ()
    """Patterns of client identifiers, where * matches anything; empty for all clients."""
    tokens: bool = True
    """True if personal access tokens may hold it."""
    denies_all: bool = False

    def allows_user(self, user: Any, groups: frozenset[str]) -> bool:
        """Return True if a user with these groups may hold it."""
        if self.denies_all:
            return False
        if not self.groups and not self.users:
            return True
        return not self.groups.isdisjoint(groups) or (bool(self.users) and get_user_key(user) in self.users)

    def allows_client(self, client_id: str) -> bool:
        """Return True if this client may hold it."""
        return not self.denies_all and (not self.clients or any(fnmatchcase(client_id, one) for one in self.clients))


Grants = Mapping[str, ScopeGrantRule]
"""Grants by scope."""
NO_GRANTS: Grants = MappingProxyType({})


def build_grants(rows: Iterable[ScopeGrant]) -> Grants:
    """Compile grants by scope. An invalid row denies its scope to all callers."""
    return MappingProxyType({row.scope: _build_grant(row) for row in rows})


def _build_grant(row: Any) -> ScopeGrantRule:
    try:
        check_names(row.groups)
        check_names(row.users)
        check_names(row.clients)
    except ValidationError:
        logger.error("Invalid grant of the scope %r; the scope is denied to all callers", row.scope)
        return ScopeGrantRule(denies_all=True)
    return ScopeGrantRule(
        groups=frozenset(row.groups),
        users=frozenset(row.users),
        clients=tuple(row.clients),
        tokens=bool(row.tokens),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequirements:
    """Requirements of policies, in addition to those in code."""

    disabled: bool = False
    """True if the tool is hidden from all callers."""
    scopes: frozenset[str] = frozenset()
    groups: tuple[frozenset[str], ...] = ()
    """Sets of groups; the caller must be in at least one group of each set."""
    rates: tuple[Rate, ...] = ()
    """Rates that apply to each caller separately."""

    def allows_groups(self, groups: frozenset[str]) -> bool:
        """Return True if a user in these groups satisfies `groups`."""
        return all(not among.isdisjoint(groups) for among in self.groups)


NO_REQUIREMENTS: Final = ToolRequirements()
"""Requirements of a tool that matches no policy."""


@dataclass(frozen=True, slots=True)
class ToolPolicies:
    """All policies, in no particular order.

    The requirements of every matching policy apply.
    """

    rows: tuple[tuple[str, str, ToolRequirements], ...] = ()
    """Server (empty for all), pattern of tool names, and requirements."""

    @classmethod
    def from_rows(cls, rows: Iterable[ToolPolicy]) -> "ToolPolicies":
        """Compile the rows. An invalid row disables its tools."""
        return cls(tuple((row.server, row.tool, _build_requirements(row)) for row in rows))

    def get_requirements(self, server: str, name: str) -> ToolRequirements:
        """Return the requirements for a tool of a server.

        `NO_REQUIREMENTS` if no policy matches.
        """
        matching = [
            requirements
            for alias, pattern, requirements in self.rows
            if alias in ("", server) and fnmatchcase(name, pattern)
        ]
        return merge_requirements(matching) if matching else NO_REQUIREMENTS


NO_POLICIES: Final = ToolPolicies()


def _build_requirements(row: Any) -> ToolRequirements:
    try:
        check_scopes(row.scopes)
        check_names(row.groups)
        return ToolRequirements(
            disabled=bool(row.disabled),
            scopes=frozenset(row.scopes),
            groups=(frozenset(row.groups),) if row.groups else (),
            rates=(Rate.parse(row.rate),) if row.rate else (),
        )
    except (ValidationError, ValueError):
        logger.error("Invalid tool policy %r; its tools are disabled", row.pk)
        return ToolRequirements(disabled=True)


def merge_requirements(requirements: Sequence[ToolRequirements]) -> ToolRequirements:
    """Merge several requirements into one that satisfies all of them."""
    if len(requirements) == 1:
        return requirements[0]
    return ToolRequirements(
        disabled=any(one.disabled for one in requirements),
        scopes=frozenset().union(*(one.scopes for one in requirements)),
        groups=tuple(among for one in requirements for among in one.groups),
        rates=tuple(dict.fromkeys(rate for one in requirements for rate in one.rates)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class RuleSnapshot:
    """The rules of one reading of the rows."""

    version: str = ""
    """Version of the rules; it changes with every change of a row."""
    policies: ToolPolicies = NO_POLICIES
    grants: Grants = field(default_factory=lambda: NO_GRANTS)
    is_empty: bool = field(init=False)
    """True without any rules."""
    _requirements: dict[tuple[str, str], ToolRequirements] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_empty", not self.policies.rows and not self.grants)

    @property
    def has_group_grants(self) -> bool:
        """True if a grant depends on groups of users."""
        return any(grant.groups for grant in self.grants.values())

    def get_requirements(self, server: str, name: str) -> ToolRequirements:
        """Return the requirements of the policies for a tool of a server."""
        if not self.policies.rows:
            return NO_REQUIREMENTS
        requirements = self._requirements.get((server, name))
        if requirements is None:
            if len(self._requirements) >= MAX_CACHED_TOOLS:
                self._requirements.clear()
            requirements = self._requirements[server, name] = self.policies.get_requirements(server, name)
        return requirements


NO_RULES: Final = RuleSnapshot()


class RuleCache:
    """Cache of the current snapshot, one for each process."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._rules = NO_RULES
        self._fresh_until = float("-inf")
        self._invalidations = 0
        self._has_loaded = False
        self._load_lock = threading.Lock()

    def get_fresh(self) -> RuleSnapshot | None:
        """Return the snapshot if it is fresh, else None. No I/O."""
        return self._rules if self._clock() < self._fresh_until else None

    def invalidate(self) -> None:
        """Invalidate the snapshot, because a rule has changed."""
        self._invalidations += 1
        self._fresh_until = float("-inf")

    def invalidate_on_commit(self, using: str) -> None:
        """Invalidate the snapshot now and at the end of the transaction on `using`.

        Until then other connections read the old rows.
        """
        self.invalidate()
        call_on_commit(self.invalidate, using=using, logger=logger, failure="Failed to discard rules after a commit")

    def set_rules(self, rules: RuleSnapshot) -> None:
        """Use `rules` until `invalidate` is called.

        For tests and scripts without a database.
        """
        self._rules = rules
        self._fresh_until = float("inf")

    async def aget(self, run: Run = run_in_thread) -> RuleSnapshot:
        """Return the rules. `run` calls blocking functions.

        Raises:
            Overloaded: the rules cannot be read.
        """
        rules = self.get_fresh()
        if rules is None:
            rules = await run(self.load)
        return rules

    def load(self) -> RuleSnapshot:
        """Return the rules and refresh the snapshot. Blocks.

        Raises:
            Overloaded: the rules cannot be read.
        """
        with self._load_lock:
            fresh = self.get_fresh()
            if fresh is not None:
                return fresh  # another thread has loaded it while this one waited for the lock
            invalidations, started_at = self._invalidations, self._clock()
            rules = self._query_or_raise_overloaded()
            self._rules = rules
            self._has_loaded = True
            if invalidations == self._invalidations:
                self._fresh_until = started_at + MAX_AGE_SECONDS
            return rules

    def get(self) -> RuleSnapshot:
        """Return the rules, also inside a transaction. Blocks.

        Inside a transaction a database may return rows of its beginning, or rows that are never committed. Rules that
        are read there are returned and not cached.

        Raises:
            Overloaded: the rules cannot be read.
        """
        fresh = self.get_fresh()
        if fresh is not None:
            return fresh
        using = router.db_for_write(StoredState)
        if not connections[using].in_atomic_block:
            return self.load()
        # A savepoint, because the transaction has to continue where the tables do not exist yet.
        with transaction.atomic(using=using):
            return self._query_or_raise_overloaded()

    def _query_or_raise_overloaded(self) -> RuleSnapshot:
        try:
            return self._query()
        except Exception as problem:
            logger.error("Permission rules cannot be read; requests are refused: %r", problem)
            raise Overloaded("Permissions cannot be checked at the moment; try again later") from None

    def _query(self) -> RuleSnapshot:
        """Read the version first: rows that are newer than it are read again next time."""
        try:
            mark = StoredState.objects.get_version(RULES_PK)
            if self._has_loaded and mark == self._rules.version:
                return self._rules
            return RuleSnapshot(
                mark, ToolPolicies.from_rows(ToolPolicy.objects.all()), build_grants(ScopeGrant.objects.all())
            )
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


RULE_CACHE: Final = RuleCache()
"""The rule cache of this process."""

"""All operations of the policy decide alike, and as the rule in this module: for any caller, tool, and rules."""

import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from mcp_django.auth.authorization.policy import Policy
from mcp_django.auth.authorization.rule_cache import (
    RuleCache,
    RuleSnapshot,
    ScopeGrantRule,
    ToolPolicies,
    ToolRequirements,
)
from mcp_django.auth.principal import ALL_SCOPES, PROJECT_ISSUER, DjangoPrincipal, local_principal
from mcp_django.server.ports import ALLOW, HIDDEN, Decision, step_up

PERMISSIONS = ("shop.view", "shop.add", "shop.change")
SCOPES = ("read", "write", "admin")
GROUPS = ("editors", "clerks", "night")
CLIENTS = ("one", "https://good.example/app", "token:5")
PATTERNS = ("*", "*", "order_*", "order_get", "book_get")


@dataclass
class Account:
    """A user without a row, as principals see it."""

    pk: int
    permissions: frozenset[str]
    names: frozenset[str]
    is_active: bool = True

    def has_perm(self, permission: str, obj: Any = None) -> bool:
        return self.is_active and permission in self.permissions

    @property
    def groups(self) -> "Account":
        return self

    def values_list(self, name: str, *, flat: bool) -> frozenset[str]:
        return self.names


@dataclass
class CallerFacts:
    """A caller, from which each question gets a new principal: results of an earlier one are not in its cache."""

    account: Account | None
    scopes: frozenset[str]
    issuer: str
    client_id: str
    is_local: bool
    known_permissions: tuple[str, ...]
    """Permissions that the principal has cached when the decision is made."""
    has_known_groups: bool

    def build(self) -> DjangoPrincipal:
        if self.is_local:
            return local_principal(self.account)
        principal = DjangoPrincipal(
            issuer=self.issuer, subject="1", client_id=self.client_id, user=self.account, scopes=self.scopes
        )
        for permission in self.known_permissions:
            principal.has_perm(permission)
        if self.has_known_groups:
            principal.groups()
        return principal


def allows(principal: DjangoPrincipal) -> bool:
    return True


def denies(principal: DjangoPrincipal) -> bool:
    return False


def fails(principal: DjangoPrincipal) -> bool:
    raise KeyError("a bug")


async def allows_async(principal: DjangoPrincipal) -> bool:
    return True


async def denies_async(principal: DjangoPrincipal) -> bool:
    return False


def allows_later(principal: DjangoPrincipal) -> Any:
    return allows_async(principal)


FUNCTIONS: dict[Callable[..., Any], bool] = {
    allows: True,
    denies: False,
    fails: False,
    allows_async: True,
    denies_async: False,
    allows_later: True,
}


@dataclass(eq=False)
class ToolFacts:
    """A tool as the policy sees it."""

    key: str
    permission: Any
    scopes: tuple[str, ...]
    kind: str = "tool"


class InlineExecutor:
    """Calls blocking functions at once, and counts them."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return fn(*args, **kwargs)

    def context(self, *, unbounded: bool = False) -> AbstractContextManager[None]:
        return nullcontext()


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as returned:
        return returned.value
    raise AssertionError("the coroutine waits")


def subsets(values: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(values))


known_accounts = st.builds(
    Account,
    pk=st.integers(1, 2),
    permissions=st.just(frozenset(PERMISSIONS)) | subsets(PERMISSIONS),
    names=subsets(GROUPS) | st.just(frozenset(GROUPS)),
    is_active=st.sampled_from((True, True, True, False)),
)
accounts = st.one_of(st.none(), known_accounts, known_accounts, known_accounts)
callers = st.builds(
    CallerFacts,
    account=accounts,
    scopes=subsets(SCOPES) | st.just(frozenset(SCOPES)) | st.just(ALL_SCOPES),
    issuer=st.sampled_from((PROJECT_ISSUER, "https://as.example")),
    client_id=st.sampled_from(CLIENTS),
    is_local=st.sampled_from((False, False, False, False, False, False, True)),
    known_permissions=subsets(PERMISSIONS).map(lambda names: tuple(sorted(names))),
    has_known_groups=st.booleans(),
)
parts = st.sampled_from((*PERMISSIONS, *PERMISSIONS, *FUNCTIONS, "", "unknown"))
permissions = st.none() | st.none() | parts | st.lists(parts, max_size=3) | st.lists(parts, max_size=3).map(tuple)
tools = st.builds(
    ToolFacts,
    key=st.sampled_from(("order_get", "order_add", "book_get")),
    permission=permissions,
    scopes=subsets(SCOPES).map(lambda names: tuple(names)),
)
requirements = st.builds(
    ToolRequirements,
    disabled=st.sampled_from((False, False, False, True)),
    scopes=subsets(SCOPES),
    groups=st.lists(st.frozensets(st.sampled_from(GROUPS), min_size=1), min_size=1, max_size=2).map(tuple)
    | st.just(()),
)
policy_rows = st.lists(
    st.tuples(st.sampled_from(("", "default", "", "other")), st.sampled_from(PATTERNS), requirements), max_size=2
)
grants = st.dictionaries(
    st.sampled_from(SCOPES),
    st.builds(
        ScopeGrantRule,
        groups=subsets(GROUPS),
        users=st.frozensets(st.sampled_from(("1", "2"))),
        clients=st.sampled_from(((), (), ("one",), ("https://good.example/*", "token:*"))),
        tokens=st.booleans(),
        denies_all=st.sampled_from((False, False, False, True)),
    ),
    max_size=2,
)


@dataclass
class RuleFacts:
    rows: list[tuple[str, str, ToolRequirements]] = field(default_factory=list)
    grants: dict[str, ScopeGrantRule] = field(default_factory=dict)

    def build(self) -> RuleCache:
        cache = RuleCache()
        cache.set_rules(RuleSnapshot("1", ToolPolicies(tuple(self.rows)), self.grants))
        return cache

    def list_matching(self, key: str) -> Iterator[ToolRequirements]:
        for server, pattern, asked in self.rows:
            if server in ("", "default") and fnmatchcase(key, pattern):
                yield asked


rules = st.builds(RuleFacts, rows=policy_rows, grants=st.just({}) | grants)


def expect(caller: CallerFacts, tool: ToolFacts, facts: RuleFacts, extra: frozenset[str] = frozenset()) -> Decision:
    """Return the right decision, written as plainly as possible."""
    matching = list(facts.list_matching(tool.key))
    if any(asked.disabled for asked in matching):
        return HIDDEN
    if caller.is_local:
        return ALLOW
    permission = tool.permission
    required = [] if permission is None else list(permission) if type(permission) in (list, tuple) else [permission]
    for part in required:
        account = caller.account
        holds = FUNCTIONS[part] if callable(part) else account is not None and account.has_perm(part)
        if not holds:
            return HIDDEN

    is_user = caller.account is not None and caller.account.is_active
    names = caller.account.names if caller.account is not None and is_user else frozenset()
    if any(among.isdisjoint(names) for asked in matching for among in asked.groups):
        return HIDDEN
    scopes = {*tool.scopes, *extra}.union(*(asked.scopes for asked in matching))
    if any(is_withheld(caller, facts.grants[scope], names) for scope in scopes if scope in facts.grants):
        return HIDDEN
    return ALLOW if caller.scopes.issuperset(scopes) else step_up(list(scopes))


def is_withheld(caller: CallerFacts, grant: ScopeGrantRule, names: frozenset[str]) -> bool:
    """Return True if a grant keeps its scope from the caller."""
    account = caller.account
    user = str(account.pk) if account is not None and account.is_active else None
    if grant.denies_all:
        return True
    if (grant.groups or grant.users) and user not in grant.users and grant.groups.isdisjoint(names):
        return True
    if caller.scopes is ALL_SCOPES:
        return False
    if caller.issuer == PROJECT_ISSUER and caller.client_id.startswith("token:"):
        return not grant.tokens
    return bool(grant.clients) and not any(fnmatchcase(caller.client_id, one) for one in grant.clients)


@pytest.fixture(autouse=True)
def without_logs() -> Iterator[None]:
    """The functions that fail are logged thousands of times."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@settings(max_examples=400)
@given(caller=callers, tool=tools, facts=rules)
def test_decide_allow_explain_list_and_hide_agree(caller: CallerFacts, tool: ToolFacts, facts: RuleFacts) -> None:
    policy = Policy(InlineExecutor(), rule_cache=facts.build())  # type: ignore[arg-type]  # Two methods are enough.
    decision = finish(policy.decide(caller.build(), tool))
    event("hidden" if not decision.visible else "allowed" if decision.allowed else "step-up")
    assert decision == expect(caller, tool, facts)

    reason = finish(policy.explain_hidden(caller.build(), tool))
    assert bool(reason) is not decision.visible
    checks = finish(policy.list_checks(caller.build(), tool))
    assert all(check.holds for check in checks) is decision.allowed
    hidden = finish(policy.find_hidden_keys(caller.build(), [tool]))
    assert (tool.key in hidden) is not decision.visible
    assert policy.is_allowed(caller.build(), tool) is decision.allowed
    assert policy.is_allowed(caller.build(), tool, after_step_up=True) is decision.visible
    if not policy.is_restricted(tool):
        assert decision == ALLOW


@settings(max_examples=150)
@given(caller=callers, tool=tools, facts=rules, extra=subsets(SCOPES))
def test_scopes_of_the_arguments_are_required_like_those_of_the_tool(
    caller: CallerFacts, tool: ToolFacts, facts: RuleFacts, extra: frozenset[str]
) -> None:
    policy = Policy(InlineExecutor(), rule_cache=facts.build())  # type: ignore[arg-type]  # Two methods are enough.
    decision = finish(policy.decide(caller.build(), tool, extra))
    assert decision == expect(caller, tool, facts, extra)


@settings(max_examples=150)
@given(caller=callers, listed=st.lists(tools, max_size=8), facts=rules)
def test_a_list_hides_the_tools_that_are_hidden_one_by_one(
    caller: CallerFacts, listed: list[ToolFacts], facts: RuleFacts
) -> None:
    for number, tool in enumerate(listed):
        tool.key = f"{tool.key.partition('-')[0]}-{number}"
    executor = InlineExecutor()
    policy = Policy(executor, rule_cache=facts.build())  # type: ignore[arg-type]  # Two methods are enough.
    expected = {tool.key for tool in listed if expect(caller, tool, facts) == HIDDEN}
    assert finish(policy.find_hidden_keys(caller.build(), listed)) == expected

    functions = sum(callable(part) for tool in listed for part in list_parts(tool.permission))
    assert executor.calls <= 2 + functions


def list_parts(permission: Any) -> list[Any]:
    return list(permission) if type(permission) in (list, tuple) else [permission]

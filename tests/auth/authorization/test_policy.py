"""Decisions: the permissions of the user and the delegated scopes, both."""

import logging
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User

from mcp_django.auth.authorization.policy import Policy, is_restricted_by_code
from mcp_django.auth.principal import DjangoPrincipal, local_principal
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.ports import ALLOW, HIDDEN, Overloaded, step_up

VIEW, ADD = "auth.view_group", "auth.add_group"


@dataclass
class Thing:
    """A primitive as the policy sees it."""

    permission: Any = None
    scopes: tuple[str, ...] = ()
    key: str = "thing"


class CountingExecutor(LeasingExecutor):
    def __init__(self) -> None:
        super().__init__()
        self.visits: list[Any] = []

    async def run(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.visits.append(fn)
        return await super().run(fn, *args, **kwargs)


@pytest.fixture
def policy() -> Policy:
    return Policy(LeasingExecutor())


@pytest.fixture
def alice(db: None) -> DjangoPrincipal:
    """May view groups; her token holds the scope "read"."""
    user = User.objects.create_user("alice")
    user.user_permissions.add(Permission.objects.get(codename="view_group"))
    return DjangoPrincipal(issuer="django", subject="1", user=User.objects.get(pk=user.pk), scopes=frozenset({"read"}))


async def yes(principal: DjangoPrincipal) -> bool:
    return True


def fails(principal: DjangoPrincipal) -> bool:
    raise KeyError("a bug")


async def fails_later(principal: DjangoPrincipal) -> bool:
    raise KeyError("a bug")


async def no(principal: DjangoPrincipal) -> bool:
    return False


def no_later(principal: DjangoPrincipal) -> Any:
    return no(principal)


class TestGuarded:
    def test_a_primitive_without_permission_and_scope_is_free(self, subtests: pytest.Subtests) -> None:
        for thing in (Thing(), Thing(permission=()), Thing(permission=[], scopes=())):
            with subtests.test(thing=thing):
                assert not is_restricted_by_code(thing)

    def test_everything_else_is_guarded(self, policy: Policy, subtests: pytest.Subtests) -> None:
        for thing in (Thing(permission=VIEW), Thing(permission=[VIEW]), Thing(permission=yes), Thing(scopes=("a",))):
            with subtests.test(thing=thing):
                assert is_restricted_by_code(thing)
                assert policy.is_restricted(thing)


DECISIONS: list[tuple[Thing, Any]] = [
    (Thing(), ALLOW),
    (Thing(permission=VIEW), ALLOW),
    (Thing(permission=ADD), HIDDEN),
    (Thing(permission=(VIEW, ADD)), HIDDEN),
    (Thing(permission=[VIEW]), ALLOW),
    (Thing(scopes=("read",)), ALLOW),
    (Thing(scopes=("write", "read")), step_up(["read", "write"])),
    (Thing(permission=VIEW, scopes=("write",)), step_up(["write"])),
    (Thing(permission=ADD, scopes=("write",)), HIDDEN),
    (Thing(permission=ADD, scopes=("read",)), HIDDEN),
    (Thing(permission=yes), ALLOW),
    (Thing(permission=lambda principal: principal.subject == "1"), ALLOW),
    (Thing(permission=lambda principal: principal.subject == "2"), HIDDEN),
    (Thing(permission=lambda principal: yes(principal)), ALLOW),
    (Thing(permission=yes, scopes=("write",)), step_up(["write"])),
    (Thing(permission=(VIEW, yes)), ALLOW),
    (Thing(permission=(ADD, yes)), HIDDEN),
    (Thing(permission=(VIEW, yes, lambda principal: False)), HIDDEN),
    (Thing(permission="not a permission"), HIDDEN),
    (Thing(permission=""), HIDDEN),
]


class TestDecision:
    async def test_permission_and_scope_are_both_required(self, policy: Policy, alice: DjangoPrincipal) -> None:
        violations = []
        for thing, decision in DECISIONS:
            found = await policy.decide(alice, thing)
            if found != decision:
                violations.append((thing, decision, found))
        assert violations == []

    async def test_a_step_up_names_all_scopes_in_order(self, policy: Policy, alice: DjangoPrincipal) -> None:
        decision = await policy.decide(alice, Thing(scopes=("write", "read", "admin")))
        assert decision.scopes == ("admin", "read", "write")
        assert decision.visible
        assert not decision.allowed

    async def test_the_local_principal_may_do_everything(self, policy: Policy) -> None:
        for thing in (Thing(permission=ADD, scopes=("write",)), Thing(permission=fails)):
            assert await policy.decide(local_principal(), thing) == ALLOW

    async def test_a_superuser_still_needs_the_scope(self, policy: Policy, db: None) -> None:
        root = DjangoPrincipal(issuer="django", subject="1", user=User(username="root", is_superuser=True, pk=1))
        assert await policy.decide(root, Thing(permission=ADD)) == ALLOW
        assert await policy.decide(root, Thing(permission=ADD, scopes=("write",))) == step_up(["write"])

    async def test_without_a_user_a_permission_hides_and_a_scope_does_not(self, policy: Policy) -> None:
        machine = DjangoPrincipal(issuer="as", subject="client", scopes=frozenset({"read"}))
        assert await policy.decide(machine, Thing(permission=VIEW, scopes=("read",))) == HIDDEN
        assert await policy.decide(machine, Thing(scopes=("read",))) == ALLOW

    async def test_a_permission_function_that_fails_permits_nothing_and_is_logged(
        self, policy: Policy, alice: DjangoPrincipal, caplog: Any
    ) -> None:
        for permission in (fails, fails_later):
            caplog.clear()
            with caplog.at_level(logging.ERROR, "mcp_django.auth"):
                assert await policy.decide(alice, Thing(permission=permission, key="broken")) == HIDDEN
            assert "'broken'" in caplog.text
            assert "KeyError" in caplog.text

    async def test_a_full_server_is_an_overload_and_not_a_decision(
        self, policy: Policy, alice: DjangoPrincipal
    ) -> None:
        async def full(principal: DjangoPrincipal) -> bool:
            raise Overloaded

        with pytest.raises(Overloaded):
            await policy.decide(alice, Thing(permission=full))

    async def test_a_cached_permission_is_decided_without_waiting(self, alice: DjangoPrincipal) -> None:
        thing, executor = Thing(permission=[VIEW]), CountingExecutor()
        policy = Policy(executor)
        await policy.decide(alice, thing)
        assert len(executor.visits) == 1
        assert await policy.decide(alice, thing) == ALLOW
        assert len(executor.visits) == 1

    async def test_an_uncached_permission_is_not_read_where_a_cached_one_hides(self, alice: DjangoPrincipal) -> None:
        executor = CountingExecutor()
        policy = Policy(executor)
        await policy.decide(alice, Thing(permission=ADD))
        assert await policy.decide(alice, Thing(permission=(VIEW, fails, ADD))) == HIDDEN
        assert len(executor.visits) == 1


class TestMany:
    async def test_hidden_primitives_are_listed(self, policy: Policy, alice: DjangoPrincipal) -> None:
        things = [
            Thing(key="free"),
            Thing(key="seen", permission=VIEW),
            Thing(key="unseen", permission=ADD),
            Thing(key="step-up", scopes=("write",)),
            Thing(key="function", permission=lambda principal: False),
            Thing(key="broken", permission=fails),
        ]
        assert await policy.find_hidden_keys(alice, things) == {"unseen", "function", "broken"}
        assert await policy.find_hidden_keys(local_principal(), things) == frozenset()

    async def test_permissions_of_many_primitives_are_read_in_one_thread_call(self, alice: DjangoPrincipal) -> None:
        executor = CountingExecutor()
        policy = Policy(executor)
        things = [Thing(key=f"{number}", permission=f"auth.{number % 5}_group") for number in range(200)]
        assert len(await policy.find_hidden_keys(alice, things)) == 200
        assert len(executor.visits) == 1
        assert len(await policy.find_hidden_keys(alice, things)) == 200
        assert len(executor.visits) == 1


@pytest.mark.django_db
def test_code_without_a_loop_awaits_functions_that_return_an_awaitable(policy: Policy, alice: DjangoPrincipal) -> None:
    assert policy.is_allowed(alice, Thing(permission=yes))
    assert not policy.is_allowed(alice, Thing(permission=no))
    assert not policy.is_allowed(alice, Thing(permission=no_later))

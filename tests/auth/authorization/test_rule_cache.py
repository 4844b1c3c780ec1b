"""The cached rules of the admin in a process: expiry, invalidation and failures."""

import logging
from typing import Any

import pytest
from django.db import DatabaseError

from mcp_django.auth.authorization.rule_cache import MAX_AGE_SECONDS, NO_REQUIREMENTS, NO_RULES, RULE_CACHE, RuleCache
from mcp_django.models import ScopeGrant, StoredState, ToolPolicy
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.base import Rate
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> RuleCache:
    return RuleCache(clock=clock)


class TestFreshness:
    def test_without_a_read_there_are_no_rules(self, book: RuleCache) -> None:
        assert book.get_fresh() is None
        assert book.load().is_empty

    def test_rules_are_cached_for_a_while_without_a_query(
        self, book: RuleCache, clock: Clock, django_assert_num_queries: Any
    ) -> None:
        book.load()
        with django_assert_num_queries(0):
            clock.now += MAX_AGE_SECONDS - 0.1
            assert book.get_fresh() is book.load()
            clock.now += 0.2
            assert book.get_fresh() is None

    def test_an_expired_cache_reads_one_row_if_nothing_changed(
        self, book: RuleCache, clock: Clock, django_assert_num_queries: Any
    ) -> None:
        ToolPolicy.objects.create(tool="a", disabled=True)
        before = book.load()
        clock.now += MAX_AGE_SECONDS
        with django_assert_num_queries(1):
            assert book.load() is before

    def test_rows_of_another_process_take_effect_after_the_cache_expires(self, book: RuleCache, clock: Clock) -> None:
        assert book.load().get_requirements("default", "a") is NO_REQUIREMENTS
        ToolPolicy.objects.create(tool="a", disabled=True)
        assert book.load().get_requirements("default", "a") is NO_REQUIREMENTS
        clock.now += MAX_AGE_SECONDS
        assert book.load().get_requirements("default", "a").disabled

    def test_every_change_of_rows_changes_the_version(self, clock: Clock, subtests: pytest.Subtests) -> None:
        for change in ("save", "delete", "update", "bulk_create", "queryset_delete"):
            with subtests.test(change=change), rolled_back():
                book = RuleCache(clock=clock)
                row = ToolPolicy.objects.create(tool="a", disabled=True)
                before = book.load()
                clock.now += MAX_AGE_SECONDS
                match change:
                    case "save":
                        row.save()
                    case "delete":
                        row.delete()
                    case "update":
                        ToolPolicy.objects.filter(tool="a").update(disabled=False)
                    case "bulk_create":
                        ToolPolicy.objects.bulk_create([ToolPolicy(tool="b", disabled=True)])
                    case "queryset_delete":
                        ToolPolicy.objects.all().delete()
                assert book.load().version != before.version

    def test_a_saved_rule_takes_effect_at_once_in_the_same_process(self, subtests: pytest.Subtests) -> None:
        for kind in (ToolPolicy, ScopeGrant):
            with subtests.test(kind=kind):
                RULE_CACHE.set_rules(NO_RULES)
                assert RULE_CACHE.get_fresh() is not None
                kind.objects.create(**({"tool": "a", "disabled": True} if kind is ToolPolicy else {"scope": "a"}))
                assert RULE_CACHE.get_fresh() is None
                assert not RULE_CACHE.load().is_empty
                kind.objects.all().delete()
                assert RULE_CACHE.get_fresh() is None

    def test_rules_that_change_during_a_read_are_read_again(self, clock: Clock) -> None:
        class Slow(RuleCache):
            def _query(self) -> Any:
                found = super()._query()
                self.invalidate()  # during the read
                return found

        book = Slow(clock=clock)
        book.load()
        assert book.get_fresh() is None

    async def test_async_code_reads_the_rules(self, book: RuleCache) -> None:
        await ToolPolicy.objects.acreate(tool="a", disabled=True)
        assert (await book.aget()).get_requirements("default", "a").disabled

    def test_rules_read_in_a_transaction_are_not_cached(self, book: RuleCache, clock: Clock) -> None:
        assert book.load().is_empty
        ToolPolicy.objects.create(tool="a", disabled=True)
        assert book.get().is_empty
        clock.now += MAX_AGE_SECONDS
        assert book.get().get_requirements("default", "a").disabled  # the test runs in one
        assert book.get_fresh() is None


UNCLEAR_POLICIES: list[Any] = [
    {"rate": "often"},
    {"scopes": "read"},
    {"scopes": ["a b"]},
    {"groups": "editors"},
    {"groups": [None]},
]


class TestFailure:
    def test_unreadable_rules_are_an_error_and_no_decision(
        self, book: RuleCache, clock: Clock, monkeypatch: Any, caplog: Any
    ) -> None:
        book.load()
        clock.now += MAX_AGE_SECONDS

        def fails(*args: Any) -> str:
            raise DatabaseError("gone")

        monkeypatch.setattr(type(StoredState.objects), "get_version", fails)
        with pytest.raises(Overloaded, match="cannot be checked"), caplog.at_level(logging.ERROR, "mcp_django.auth"):
            book.load()
        assert "gone" in caplog.text
        monkeypatch.undo()
        assert book.load().is_empty

    def test_without_tables_there_are_no_rules(self, book: RuleCache, monkeypatch: Any) -> None:
        def fails(*args: Any) -> str:
            raise DatabaseError("no such table")

        monkeypatch.setattr(type(StoredState.objects), "get_version", fails)
        monkeypatch.setattr("mcp_django.auth.authorization.rule_cache._is_migrated", lambda: False)
        assert book.load() is NO_RULES

    def test_an_invalid_policy_disables_its_tools(self, caplog: Any, subtests: pytest.Subtests) -> None:
        for row in UNCLEAR_POLICIES:
            with subtests.test(row=row), rolled_back():
                book = RuleCache()
                caplog.clear()
                ToolPolicy.objects.create(tool="a", **row)
                with caplog.at_level(logging.ERROR, "mcp_django.auth"):
                    assert book.load().get_requirements("default", "a").disabled
                assert "Invalid tool policy" in caplog.text

    def test_an_invalid_grant_allows_no_caller(self, caplog: Any, subtests: pytest.Subtests) -> None:
        for row in ({"groups": "editors"}, {"clients": [1]}, {"clients": {}}, {"users": 1}):
            with subtests.test(row=row), rolled_back():
                book = RuleCache()
                ScopeGrant.objects.create(scope="a", **row)
                with caplog.at_level(logging.ERROR, "mcp_django.auth"):
                    grant = book.load().grants["a"]
                assert not grant.allows_user(None, frozenset({"editors"}))
                assert not grant.allows_client("1")


class TestPolicies:
    @pytest.fixture(autouse=True)
    def _rows(self, db: None) -> None:
        for row in (
            {"tool": "order_*", "scopes": ["orders"], "rate": "100/h"},
            {"tool": "order_delete", "groups": ["managers", "owners"]},
            {"tool": "*_delete", "groups": ["auditors"], "rate": "1/m"},
            {"tool": "order_get", "server": "internal", "disabled": True},
            {"tool": "order_?et", "rate": "5/s"},
        ):
            ToolPolicy.objects.create(**row)

    def test_every_matching_policy_applies(self, book: RuleCache) -> None:
        asked = book.load().get_requirements("default", "order_delete")
        assert asked.scopes == {"orders"}
        assert set(asked.rates) == {Rate(100, 3600), Rate(1, 60)}
        assert asked.allows_groups(frozenset({"owners", "auditors"}))
        assert not asked.allows_groups(frozenset({"owners"}))
        assert not asked.allows_groups(frozenset())

    def test_a_policy_of_one_server_applies_to_that_server_only(self, book: RuleCache) -> None:
        assert book.load().get_requirements("internal", "order_get").disabled
        asked = book.load().get_requirements("default", "order_get")
        assert not asked.disabled
        assert Rate(5, 1) in asked.rates

    def test_names_are_case_sensitive(self, book: RuleCache) -> None:
        assert book.load().get_requirements("default", "Order_get") is NO_REQUIREMENTS

    def test_the_requirements_of_a_tool_are_computed_once(self, book: RuleCache) -> None:
        rules = book.load()
        assert rules.get_requirements("default", "order_delete") is rules.get_requirements("default", "order_delete")

"""What a process knows of the rules of the admin: at most so old, at once another, and nothing when it cannot know."""

import logging
from typing import Any

import pytest
from django.db import DatabaseError

from mcp_django.auth.authorization.rule_cache import FRESH, NO_RULES, RULEBOOK, Rulebook
from mcp_django.auth.authorization.tool_policies import NOTHING
from mcp_django.models import ScopeGrant, StoredState, ToolPolicy
from mcp_django.server.ports import Overloaded
from mcp_django.server.rates import Rate
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
def book(clock: Clock) -> Rulebook:
    return Rulebook(clock=clock)


class TestFreshness:
    def test_nothing_is_known_before_it_was_read(self, book: Rulebook) -> None:
        assert book.now() is None
        assert book.read().is_empty

    def test_what_was_read_is_believed_for_a_while_without_a_statement(
        self, book: Rulebook, clock: Clock, django_assert_num_queries: Any
    ) -> None:
        book.read()
        with django_assert_num_queries(0):
            clock.now += FRESH - 0.1
            assert book.now() is book.read()
            clock.now += 0.2
            assert book.now() is None

    def test_after_that_one_row_is_read_while_nothing_has_changed(
        self, book: Rulebook, clock: Clock, django_assert_num_queries: Any
    ) -> None:
        ToolPolicy.objects.create(tool="a", disabled=True)
        before = book.read()
        clock.now += FRESH
        with django_assert_num_queries(1):
            assert book.read() is before

    def test_rows_of_another_process_count_when_the_old_ones_are_believed_no_more(
        self, book: Rulebook, clock: Clock
    ) -> None:
        assert book.read().of_tool("default", "a") is NOTHING
        ToolPolicy.objects.create(tool="a", disabled=True)
        assert book.read().of_tool("default", "a") is NOTHING
        clock.now += FRESH
        assert book.read().of_tool("default", "a").disabled

    def test_every_change_of_rows_changes_the_mark(self, clock: Clock, subtests: pytest.Subtests) -> None:
        for change in ("save", "delete", "update", "bulk_create", "queryset_delete"):
            with subtests.test(change=change), rolled_back():
                book = Rulebook(clock=clock)
                row = ToolPolicy.objects.create(tool="a", disabled=True)
                before = book.read()
                clock.now += FRESH
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
                assert book.read().mark != before.mark

    def test_a_saved_rule_counts_at_once_in_the_same_process(self, subtests: pytest.Subtests) -> None:
        for kind in (ToolPolicy, ScopeGrant):
            with subtests.test(kind=kind):
                RULEBOOK.assume(NO_RULES)
                assert RULEBOOK.now() is not None
                kind.objects.create(**({"tool": "a", "disabled": True} if kind is ToolPolicy else {"scope": "a"}))
                assert RULEBOOK.now() is None
                assert not RULEBOOK.read().is_empty
                kind.objects.all().delete()
                assert RULEBOOK.now() is None

    def test_rules_that_change_while_they_are_read_are_read_again(self, clock: Clock) -> None:
        class Slow(Rulebook):
            def _read(self) -> Any:
                found = super()._read()
                self.forget()  # said while it was read
                return found

        book = Slow(clock=clock)
        book.read()
        assert book.now() is None

    async def test_async_code_reads_it_too(self, book: Rulebook) -> None:
        await ToolPolicy.objects.acreate(tool="a", disabled=True)
        assert (await book.current()).of_tool("default", "a").disabled

    def test_what_is_read_in_a_transaction_is_not_kept_for_others(self, book: Rulebook, clock: Clock) -> None:
        assert book.read().is_empty
        ToolPolicy.objects.create(tool="a", disabled=True)
        assert book.known().is_empty
        clock.now += FRESH
        assert book.known().of_tool("default", "a").disabled  # the test runs in one
        assert book.now() is None


UNCLEAR_POLICIES: list[Any] = [
    {"rate": "often"},
    {"scopes": "read"},
    {"scopes": ["a b"]},
    {"groups": "editors"},
    {"groups": [None]},
]


class TestFailure:
    def test_rules_that_cannot_be_read_decide_nothing(
        self, book: Rulebook, clock: Clock, monkeypatch: Any, caplog: Any
    ) -> None:
        book.read()
        clock.now += FRESH

        def fails(*args: Any) -> str:
            raise DatabaseError("gone")

        monkeypatch.setattr(type(StoredState.objects), "mark", fails)
        with pytest.raises(Overloaded, match="cannot be checked"), caplog.at_level(logging.ERROR, "mcp_django.auth"):
            book.read()
        assert "gone" in caplog.text
        monkeypatch.undo()
        assert book.read().is_empty

    def test_where_the_tables_are_not_made_yet_there_are_no_rules(self, book: Rulebook, monkeypatch: Any) -> None:
        def fails(*args: Any) -> str:
            raise DatabaseError("no such table")

        monkeypatch.setattr(type(StoredState.objects), "mark", fails)
        monkeypatch.setattr("mcp_django.auth.authorization.rule_cache._is_migrated", lambda: False)
        assert book.read() is NO_RULES

    def test_a_policy_that_cannot_be_understood_disables_its_tools(
        self, caplog: Any, subtests: pytest.Subtests
    ) -> None:
        for row in UNCLEAR_POLICIES:
            with subtests.test(row=row), rolled_back():
                book = Rulebook()
                caplog.clear()
                ToolPolicy.objects.create(tool="a", **row)
                with caplog.at_level(logging.ERROR, "mcp_django.auth"):
                    assert book.read().of_tool("default", "a").disabled
                assert "Invalid tool policy" in caplog.text

    def test_a_grant_that_cannot_be_understood_allows_nobody(self, caplog: Any, subtests: pytest.Subtests) -> None:
        for row in ({"groups": "editors"}, {"clients": [1]}, {"clients": {}}):
            with subtests.test(row=row), rolled_back():
                book = Rulebook()
                ScopeGrant.objects.create(scope="a", **row)
                with caplog.at_level(logging.ERROR, "mcp_django.auth"):
                    grant = book.read().grants["a"]
                assert not grant.lets_user(frozenset({"editors"}))
                assert not grant.lets_client("1")


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

    def test_every_policy_that_fits_holds(self, book: Rulebook) -> None:
        asked = book.read().of_tool("default", "order_delete")
        assert asked.scopes == {"orders"}
        assert set(asked.rates) == {Rate(100, 3600), Rate(1, 60)}
        assert asked.lets_in(frozenset({"owners", "auditors"}))
        assert not asked.lets_in(frozenset({"owners"}))
        assert not asked.lets_in(frozenset())

    def test_a_policy_for_one_server_is_for_that_alone(self, book: Rulebook) -> None:
        assert book.read().of_tool("internal", "order_get").disabled
        asked = book.read().of_tool("default", "order_get")
        assert not asked.disabled
        assert Rate(5, 1) in asked.rates

    def test_names_are_told_apart_by_capital_letters(self, book: Rulebook) -> None:
        assert book.read().of_tool("default", "Order_get") is NOTHING

    def test_what_is_asked_for_a_tool_is_found_once(self, book: Rulebook) -> None:
        rules = book.read()
        assert rules.of_tool("default", "order_delete") is rules.of_tool("default", "order_delete")

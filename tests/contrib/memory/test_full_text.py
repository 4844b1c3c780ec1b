"""Full-text search on PostgreSQL, and its index."""

from collections.abc import Callable

import pytest
from django.core.management import call_command
from django.db import connection

from mcp_django.contrib.memory.checks import check_search_config
from mcp_django.contrib.memory.facts import FactStore
from mcp_django.contrib.memory.models import Fact
from mcp_django.contrib.memory.search import rank_facts

pytestmark = pytest.mark.django_db
postgres = pytest.mark.skipif(connection.vendor != "postgresql", reason="needs PostgreSQL")


@pytest.fixture
def facts() -> FactStore:
    facts = FactStore("as|1")
    for text in ("Has an allergy: peanuts.", "Runs on Sundays.", "Peanuts, peanuts, peanuts."):
        facts.save(text)
    return facts


def found(facts: FactStore, query: str) -> list[str]:
    return [fact.text for fact in facts.search(query).rows]


@postgres
def test_a_language_is_searched_by_stems(facts: FactStore, options: Callable[..., None]) -> None:
    assert found(facts, "allergies") == []
    options(SEARCH_CONFIG="english")
    assert found(facts, "allergies running") == ["Runs on Sundays.", "Has an allergy: peanuts."]


@postgres
def test_more_frequent_words_rank_first(facts: FactStore) -> None:
    assert found(facts, "peanuts") == ["Peanuts, peanuts, peanuts.", "Has an allergy: peanuts."]


@postgres
def test_the_search_can_use_its_index(facts: FactStore) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_indexscan = off")
    assert "mcp_memory_fact_search" in rank_facts(Fact.objects.all(), "peanuts").order_by().explain()


@postgres
def test_a_configuration_that_the_database_does_not_have_is_reported(options: Callable[..., None]) -> None:
    assert check_search_config(None, databases=["default"]) == []
    options(SEARCH_CONFIG="klingon")
    assert check_search_config(None) == []
    (problem,) = check_search_config(None, databases=["default"])
    assert problem.id == "mcp_memory.E001"
    assert "english" in str(problem.hint)


def test_no_migration_is_missing() -> None:
    call_command("makemigrations", "mcp_memory", "--check", "--dry-run", verbosity=0)


@postgres
def test_the_index_can_be_dropped_and_created_again() -> None:
    for target in ("zero", "0001"):
        call_command("migrate", "mcp_memory", target, verbosity=0)

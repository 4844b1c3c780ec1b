"""Changed rules are published on commit: to this process at once, to others through the log."""

from typing import Any

import pytest
from django.db import transaction

from mcp_django import wiring
from mcp_django.auth.authorization.rule_cache import NO_RULES, RULE_CACHE
from mcp_django.models import ScopeGrant, StreamEvent, ToolPolicy
from mcp_django.server.primitives.registry import get_registry
from mcp_django.wiring import process


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Record the published events."""
    found: list[tuple[str, Any]] = []

    def publish(*drafts: Any, using: str | None = None) -> None:
        found.extend((draft.topic, draft.payload) for draft in drafts)

    monkeypatch.setattr(wiring.get_services().event_publisher, "publish_on_commit", publish)
    return found


@pytest.fixture(autouse=True)
def _a_tool() -> Any:
    """Add a rule for a tool of the default server."""
    tools = get_registry("default").tools
    from mcp_django import tool

    tool(lambda: "x", name="told")
    yield
    tools.remove("told")


@pytest.mark.django_db
def test_a_changed_rule_changes_the_lists(subtests: pytest.Subtests, published: list[Any]) -> None:
    for row in [ToolPolicy(tool="x", disabled=True), ScopeGrant(scope="x")]:
        with subtests.test(row=row):
            published.clear()
            row.save()
            assert ("changes:default", {"kind": "tools", "rights": "changed"}) in published
            published.clear()
            row.delete()
            assert ("changes:default", {"kind": "tools", "rights": "changed"}) in published


def test_a_permission_event_clears_the_cached_rules() -> None:
    assert RULE_CACHE.get_fresh() is NO_RULES
    process._invalidate_rights()
    assert RULE_CACHE.get_fresh() is None


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_rule_is_not_published_and_has_no_effect() -> None:
    before = StreamEvent.objects.count()
    with transaction.atomic():
        ToolPolicy.objects.create(tool="x", disabled=True)
        transaction.set_rollback(True)
    assert StreamEvent.objects.count() == before
    assert RULE_CACHE.load().is_empty


@pytest.mark.django_db(transaction=True)
def test_rules_read_before_the_commit_are_not_cached_after_it() -> None:
    with transaction.atomic():
        ToolPolicy.objects.create(tool="x", disabled=True)
        RULE_CACHE.set_rules(NO_RULES)  # as another thread may have read them before the commit
    assert RULE_CACHE.get_fresh() is None
    assert RULE_CACHE.load().get_requirements("default", "x").disabled


def test_a_failed_publish_of_a_rule_does_not_fail_the_save(
    db: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*drafts: Any, using: str | None = None) -> None:
        raise OSError("gone")

    monkeypatch.setattr(wiring.get_services().event_publisher, "publish_on_commit", fails)
    ToolPolicy.objects.create(tool="x", disabled=True)
    assert ToolPolicy.objects.count() == 1
    assert "Notifying clients of changed policies failed" in caplog.text

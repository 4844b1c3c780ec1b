"""Notifications about stored prompts and resources."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from mcp_django.models import StoredArgument, StoredMessage, StoredPrompt, StoredResource, StoredState
from mcp_django.notifications import stored_signals
from mcp_django.runtime.events.event_log import EventLog

pytestmark = pytest.mark.django_db
PublishedBy = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def _two_servers(settings: Any) -> None:
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {}, "staff": {}}}


@pytest.fixture
def published_by(django_capture_on_commit_callbacks: Any) -> Callable[[Callable[[], Any]], PublishedBy]:
    """Return the events that a function publishes on commit: server and kind of list, or URI."""

    def run(do: Callable[[], Any]) -> PublishedBy:
        start = EventLog().head()
        with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
            do()
        found = [(topic.removeprefix("changes:"), payload) for _, topic, _, payload in EventLog().read(start)]
        return sorted((server, payload.get("uri") or payload["kind"]) for server, payload in found)

    return run


def test_a_saved_prompt_changes_the_list_of_its_servers_once(published_by: Any) -> None:
    def write() -> None:
        row = StoredPrompt.objects.create(name="greet")
        StoredArgument.objects.create(prompt=row, name="who")
        StoredMessage.objects.create(prompt=row, text="Hi $who")
        row.save()

    assert published_by(write) == [("default", "prompts"), ("staff", "prompts")]
    row = StoredPrompt.objects.create(name="greet", server="staff")
    assert published_by(row.save) == [("staff", "prompts")]
    argument = StoredArgument.objects.create(prompt=row, name="who")
    assert published_by(argument.delete) == [("staff", "prompts")]
    assert published_by(row.delete) == [("staff", "prompts")]


def test_a_prompt_that_moves_changes_the_lists_of_both_servers(published_by: Any) -> None:
    row = StoredPrompt.objects.create(name="greet", server="staff")
    row = StoredPrompt.objects.get(pk=row.pk)
    row.server = "default"
    assert published_by(row.save) == [("default", "prompts"), ("staff", "prompts")]
    assert published_by(row.save) == [("default", "prompts")]


def test_a_saved_resource_is_published_as_updated(published_by: Any) -> None:
    row = StoredResource.objects.create(uri="docs://a", name="a", server="staff")
    row = StoredResource.objects.get(pk=row.pk)
    assert published_by(row.save) == [("staff", "docs://a"), ("staff", "resources")]
    row.uri = "docs://b"
    assert published_by(row.save) == [("staff", "docs://a"), ("staff", "docs://b"), ("staff", "resources")]
    assert published_by(row.delete) == [("staff", "docs://b"), ("staff", "resources")]


def test_a_row_of_a_removed_server_publishes_nothing(published_by: Any) -> None:
    assert published_by(lambda: StoredPrompt.objects.create(name="greet", server="gone")) == []


def test_a_failed_publish_does_not_fail_the_save(
    published_by: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(stored_signals, "notify_list_changed", fail)
    mark = StoredState.objects.get_version()
    assert published_by(lambda: StoredPrompt.objects.create(name="greet")) == []
    assert StoredPrompt.objects.exists()
    assert StoredState.objects.get_version() != mark
    assert "Notifying clients of changed stored primitives failed" in caplog.text


def test_a_deferred_row_is_read_without_more_queries(django_assert_num_queries: Any) -> None:
    StoredResource.objects.create(uri="docs://a", name="a")
    with django_assert_num_queries(1):
        list(StoredResource.objects.only("name"))

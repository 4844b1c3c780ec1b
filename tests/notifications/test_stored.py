"""What clients are told when something stored changes."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from mcp_django.models import StoredArgument, StoredMessage, StoredPrompt, StoredResource, StoredState
from mcp_django.notifications import stored_signals
from mcp_django.runtime.events.event_log import EventLog

pytestmark = pytest.mark.django_db
Said = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def _two_servers(settings: Any) -> None:
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {}, "staff": {}}}


@pytest.fixture
def said(django_capture_on_commit_callbacks: Any) -> Callable[[Callable[[], Any]], Said]:
    """What is told, once it is committed, of what a function does: server and kind of list, or URI."""

    def told(do: Callable[[], Any]) -> Said:
        start = EventLog().head()
        with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
            do()
        found = [(topic.removeprefix("changes:"), payload) for _, topic, _, payload in EventLog().read(start)]
        return sorted((server, payload.get("uri") or payload["kind"]) for server, payload in found)

    return told


def test_a_prompt_that_is_saved_changes_the_list_of_its_servers_once(said: Any) -> None:
    def write() -> None:
        row = StoredPrompt.objects.create(name="greet")
        StoredArgument.objects.create(prompt=row, name="who")
        StoredMessage.objects.create(prompt=row, text="Hi $who")
        row.save()

    assert said(write) == [("default", "prompts"), ("staff", "prompts")]
    row = StoredPrompt.objects.create(name="greet", server="staff")
    assert said(row.save) == [("staff", "prompts")]
    argument = StoredArgument.objects.create(prompt=row, name="who")
    assert said(argument.delete) == [("staff", "prompts")]
    assert said(row.delete) == [("staff", "prompts")]


def test_a_prompt_that_moves_is_told_at_both_places(said: Any) -> None:
    row = StoredPrompt.objects.create(name="greet", server="staff")
    row = StoredPrompt.objects.get(pk=row.pk)
    row.server = "default"
    assert said(row.save) == [("default", "prompts"), ("staff", "prompts")]
    assert said(row.save) == [("default", "prompts")]


def test_a_resource_that_is_saved_is_updated(said: Any) -> None:
    row = StoredResource.objects.create(uri="docs://a", name="a", server="staff")
    row = StoredResource.objects.get(pk=row.pk)
    assert said(row.save) == [("staff", "docs://a"), ("staff", "resources")]
    row.uri = "docs://b"
    assert said(row.save) == [("staff", "docs://a"), ("staff", "docs://b"), ("staff", "resources")]
    assert said(row.delete) == [("staff", "docs://b"), ("staff", "resources")]


def test_a_server_that_is_described_no_more_has_nobody_to_tell(said: Any) -> None:
    assert said(lambda: StoredPrompt.objects.create(name="greet", server="gone")) == []


def test_what_cannot_be_told_fails_no_save(said: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(stored_signals, "notify_list_changed", fail)
    mark = StoredState.objects.get_version()
    assert said(lambda: StoredPrompt.objects.create(name="greet")) == []
    assert StoredPrompt.objects.exists()
    assert StoredState.objects.get_version() != mark
    assert "Notifying clients of changed stored primitives failed" in caplog.text


def test_reading_a_row_in_part_asks_for_nothing_more(django_assert_num_queries: Any) -> None:
    StoredResource.objects.create(uri="docs://a", name="a")
    with django_assert_num_queries(1):
        list(StoredResource.objects.only("name"))

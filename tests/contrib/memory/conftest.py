"""Two users of the memory, and the notifications of their clients."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from mcp_django.runtime.events.event_log import EventLog
from tests.contrib.memory.clients import Client, user_client


@pytest.fixture
def ada(db: None) -> Client:
    return user_client(User.objects.create_user("ada"))


@pytest.fixture
def bob(db: None) -> Client:
    return user_client(User.objects.create_user("bob"))


@pytest.fixture(autouse=True)
def options(settings: Any) -> Callable[..., None]:
    """Function that sets options of the memory."""

    def change(**options: Any) -> None:
        servers: dict[str, Any] = {"default": {}, "memory": {}}
        settings.MCP = {"AUTH": "none", "SERVERS": servers, "MEMORY": {"SERVER": "memory", **options}}

    change()
    return change


@pytest.fixture
def collect_notifications(django_capture_on_commit_callbacks: Any) -> Any:
    """Context manager that collects the owners and URIs of its notifications in a list."""

    class CollectedNotifications(list[tuple[str, str]]):
        def __enter__(self) -> "CollectedNotifications":
            self._start, self._block = EventLog().head(), django_capture_on_commit_callbacks(execute=True)
            self._block.__enter__()
            return self

        def __exit__(self, *problem: Any) -> None:
            self._block.__exit__(*problem)
            events = EventLog().read(self._start)
            assert {(event.topic, event.kind) for event in events} <= {("changes:memory", "updated")}
            self[:] = [(event.payload["owner"], event.payload["uri"]) for event in events]

    return CollectedNotifications

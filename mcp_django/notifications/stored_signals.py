"""Reload stored prompts and resources and notify clients when they change."""

from collections.abc import Callable
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model
from django.db.models.signals import post_delete, post_save

from mcp_django import conf
from mcp_django.models import StoredArgument, StoredPrompt, StoredResource, StoredState
from mcp_django.models.stored.base import Stored
from mcp_django.notifications.publish import log_failure, notify_list_changed, notify_resource_updated


def connect() -> None:
    """Connect to saves and deletions of stored primitives, fixtures included.

    Called once, when the project starts. Messages are not included: lists do not show them, and each request for a
    prompt reads them.
    """
    receivers: list[tuple[type[Model], Callable[..., None]]] = [
        (StoredPrompt, _prompt_changed),
        (StoredArgument, _argument_changed),
        (StoredResource, _resource_changed),
    ]
    for model, receiver in receivers:
        for name, signal in (("saved", post_save), ("deleted", post_delete)):
            signal.connect(receiver, sender=model, dispatch_uid=f"mcp_django.stored.{receiver.__name__}.{name}")


def _prompt_changed(*, instance: StoredPrompt, using: str, **_: Any) -> None:
    StoredState.objects.using(using).change_version()
    for server, _name in _update_published_key(instance):
        _notify(server, using)


def _argument_changed(*, instance: StoredArgument, using: str, **_: Any) -> None:
    StoredState.objects.using(using).change_version()
    try:
        server = instance.prompt.server
    except ObjectDoesNotExist:
        return  # deleted together with its prompt, whose own signal notifies clients
    _notify(server, using)


def _resource_changed(*, instance: StoredResource, using: str, **_: Any) -> None:
    StoredState.objects.using(using).change_version()
    for server, uri in _update_published_key(instance):
        _notify(server, using, uri)


def _update_published_key(row: Stored) -> set[tuple[str, str]]:
    """Return the current server and key of a row, and those it was read with."""
    current, previous = (row.server, row.key), row.published_key
    row.published_key = current
    return {current} if previous is None else {current, previous}


def _notify(server: str, using: str, uri: str | None = None) -> None:
    """Notify the clients of a server, or of all servers for ""."""
    if server and server not in conf.servers():
        return  # a server that is not in the settings has no clients
    with log_failure("stored primitives"):
        if uri is not None:
            notify_resource_updated(uri, server=server or None, using=using)
        notify_list_changed("prompts" if uri is None else "resources", server=server or None, using=using)

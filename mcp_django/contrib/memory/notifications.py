"""Notifications to the clients of an owner."""

from collections.abc import Iterable

from django.db import router

from mcp_django import notify_resource_updated
from mcp_django.contrib.memory.models import Owner
from mcp_django.contrib.memory.options import get_settings


def notify_owner(owner: str, uris: Iterable[str]) -> None:
    """Notify only the clients of a `Principal.owner` of changed resources.

    Notifications are sent when the transaction commits, or at once without a transaction.
    """
    server, alias = get_settings().server, router.db_for_write(Owner)
    for uri in uris:
        notify_resource_updated(uri, owner=owner, server=server, using=alias)

"""What an owner's clients are told."""

from collections.abc import Iterable

from django.db import router

from mcp_django import notify_resource_updated
from mcp_django.contrib.memory.models import Owner
from mcp_django.contrib.memory.options import get_settings


def tell(owner: str, uris: Iterable[str]) -> None:
    """Tell the clients of a `Principal.owner`, and nobody else, that resources changed: when the transaction commits,
    or at once if there is none.
    """
    server, alias = get_settings().server, router.db_for_write(Owner)
    for uri in uris:
        notify_resource_updated(uri, owner=owner, server=server, using=alias)

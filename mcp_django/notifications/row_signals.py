"""Rows that toolsets serve as resources: their subscribers are told when a transaction that changed them commits.

`orm` knows no notifications. It says by a signal which models it serves, and here they are tied to their URIs.
"""

from functools import partial
from typing import Any

from mcp_django import conf, signals
from mcp_django.notifications.model_signals import publish_changes
from mcp_django.server.primitives.registry import REGISTRIES


def connect() -> None:
    """Listen to the toolsets that are registered from now on. Done once, before the project's modules are imported."""
    signals.model_registered.connect(_tie, dispatch_uid="mcp_django.rows")


def _tie(*, sender: Any, toolset: Any, server: str, **_: Any) -> None:
    """Rows of a proxy are saved by the name of its concrete model, too, and a row shows what its inlines show. A server
    that code has made for itself has an alias that nobody can be told under.
    """
    registry = toolset.registry
    served = server in conf.servers() and (registry.is_told or REGISTRIES.get(server) is registry)
    if served and toolset.publish_changes and toolset.serves_rows:
        key = sender._meta.pk.attname
        # Not `pk`: a model that inherits from this one may have another.
        publish_changes(sender._meta.concrete_model, partial(_uri, toolset, key), server=server, list_changed=False)
        for inline in toolset.inline_toolsets:
            if inline.foreign_key.target_field.primary_key:
                below = partial(_uri, toolset, inline.foreign_key.attname)
                publish_changes(inline.model._meta.concrete_model, below, server=server, list_changed=False)


def _uri(toolset: Any, key: str, instance: Any) -> str:
    """The URI of the row whose primary key an attribute holds: the object's own, or that of the row it belongs to."""
    uri: str = toolset.uri(getattr(instance, key))
    return uri

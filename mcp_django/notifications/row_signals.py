"""Publish changes of the model rows that toolsets serve as resources.

`orm` cannot depend on notifications. It sends a signal for each model it serves, and this module connects the model to
its URIs.
"""

from functools import partial
from typing import Any

from mcp_django import conf, signals
from mcp_django.notifications.model_signals import publish_changes
from mcp_django.server.primitives.registry import REGISTRIES


def connect() -> None:
    """Connect to the registration of toolsets.

    Called once, before the project's modules are imported.
    """
    signals.model_registered.connect(_connect_toolset, dispatch_uid="mcp_django.rows")


def _connect_toolset(*, sender: Any, toolset: Any, server: str, **_: Any) -> None:
    """Publish the changes of the rows that a toolset serves.

    Rows of a proxy model are also saved under its concrete model. A row shows its inline rows, so their changes are
    published too. A server created by code has no alias in the settings, and its clients cannot be notified.
    """
    registry = toolset.registry
    served = server in conf.servers() and (registry.publishes_changes or REGISTRIES.get(server) is registry)
    if served and toolset.publish_changes and toolset.has_row_uris:
        key = sender._meta.pk.attname
        # Not `pk`: a subclass of this model may have another primary key.
        publish_changes(
            sender._meta.concrete_model, partial(_get_row_uri, toolset, key), server=server, list_changed=False
        )
        for inline in toolset.inline_toolsets:
            if inline.foreign_key.target_field.primary_key:
                inline_uri = partial(_get_row_uri, toolset, inline.foreign_key.attname)
                publish_changes(inline.model._meta.concrete_model, inline_uri, server=server, list_changed=False)


def _get_row_uri(toolset: Any, key: str, instance: Any) -> str:
    """Return the URI of the row whose primary key is in the attribute `key`.

    This is the object's own row, or for an inline row the row it belongs to.
    """
    uri: str = toolset.build_row_uri(getattr(instance, key))
    return uri

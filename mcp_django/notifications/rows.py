"""Rows that toolsets serve as resources: their subscribers are told when a transaction that changed them commits.

`orm` knows no notifications. It says by a signal which models it serves, and here they are tied to their URIs.
"""

from functools import partial
from typing import Any

from .. import conf, signals
from ..server.registry import REGISTRIES
from .tie import publish_changes


def connect() -> None:
    """Listen to the toolsets that are registered from now on. Done once, before the project's modules are imported."""
    signals.model_registered.connect(_tie, dispatch_uid="mcp_django.rows")


def _tie(*, sender: Any, toolset: Any, server: str, **_: Any) -> None:
    """Rows of a proxy are saved by the name of its concrete model, too. A server that code has made for itself has an
    alias that nobody can be told under.
    """
    served = server in conf.servers() and REGISTRIES.get(server) is toolset.registry
    if served and toolset.publish_changes and toolset.serves_rows:
        model = sender._meta.concrete_model
        publish_changes(model, partial(_uri, toolset), server=server, list_changed=False)


def _uri(toolset: Any, instance: Any) -> str:
    """The URI of a row."""
    # Not `pk`: a model that inherits from this one may have another.
    uri: str = toolset.uri(getattr(instance, toolset.model._meta.pk.attname))
    return uri

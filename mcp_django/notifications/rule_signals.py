"""Reload rules in all processes and notify clients when rules change in the admin."""

import logging
from collections.abc import Iterable
from typing import Any

from django.db.models.signals import post_delete, post_save

from mcp_django import conf, wiring
from mcp_django.auth.authorization.rule_cache import RULE_CACHE
from mcp_django.models import ScopeGrant, StoredState, ToolPolicy
from mcp_django.models.stored.cache_version import RULES_PK
from mcp_django.runtime.events.event_log import EventDraft, changes_topic
from mcp_django.server.execution.lists import KINDS
from mcp_django.server.primitives.base import Primitive

logger = logging.getLogger("mcp_django.events")


def connect() -> None:
    """Connect to saves and deletions of rules, fixtures included.

    Called once, when the project starts.
    """
    for model in (ToolPolicy, ScopeGrant):
        for name, signal in (("saved", post_save), ("deleted", post_delete)):
            signal.connect(_rule_changed, sender=model, dispatch_uid=f"mcp_django.rules.{model.__name__}.{name}")


def _rule_changed(*, instance: Any, using: str, **_: Any) -> None:
    StoredState.objects.using(using).change_version(RULES_PK)
    RULE_CACHE.invalidate_on_commit(using)
    try:
        # As for changed permissions: each receiving process clears its caches. The event is published again once no
        # process can still use the old rules.
        drafts = [
            EventDraft(changes_topic(alias), "list_changed", {"kind": kind, "rights": "changed"})
            for alias in conf.get_settings().servers
            for kind in _get_ruled_kinds(alias)
        ]
        if drafts:
            wiring.get_event_publisher().publish_on_commit(*drafts, using=using)
    except Exception:
        logger.exception("Notifying clients of changed policies failed")


def _get_ruled_kinds(alias: str) -> list[str]:
    """Return the kinds of lists of a server that rules can affect."""
    server = wiring.get_server(alias)
    provided = {name for provider in server.providers for name in provider.offers}
    ruled = [
        kind.capability
        for kind in KINDS
        if kind.capability in provided or _has_ruled_primitive(getattr(server.registry, kind.collection))
    ]
    return list(dict.fromkeys(ruled))


def _has_ruled_primitive(primitives: Iterable[Primitive]) -> bool:
    return any(
        primitive.kind == "tool" or primitive.scopes or primitive.stands_for is not None for primitive in primitives
    )

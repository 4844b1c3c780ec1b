"""Notify clients of changed lists when Django permissions of their users change."""

import logging
from collections.abc import Callable, Collection
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist
from django.db import transaction
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_save

from mcp_django import conf, wiring
from mcp_django.auth.principal import invalidate_permissions
from mcp_django.runtime.events.event_log import EventDraft, changes_topic
from mcp_django.server.execution.lists import KINDS

logger = logging.getLogger("mcp_django.events")

MAX_NAMED_USERS = 20
"""Maximum number of users named one by one; for more users, all clients are notified."""
PERMISSION_FLAGS = frozenset({"is_active", "is_superuser"})
POST_ACTIONS = frozenset({"post_add", "post_remove", "post_clear"})


def connect() -> None:
    """Connect to the signals of users, groups and their permissions.

    Called once, when the project starts.
    """
    users = get_user_model()
    for name in ("groups", "user_permissions"):
        through_model = get_through_model(users, name)
        if through_model is not None:
            _connect(m2m_changed, _user_permissions_changed, through_model)
    _connect(post_save, _user_saved, users)
    if apps.is_installed("django.contrib.auth"):
        groups = apps.get_model("auth", "Group")
        _connect(m2m_changed, _group_permissions_changed, get_through_model(groups, "permissions"))
        _connect(post_delete, _group_deleted, groups)


def _connect(signal: Any, receiver: Callable[..., None], sender: Any) -> None:
    signal.connect(receiver, sender=sender, dispatch_uid=f"mcp_django.rights.{receiver.__name__}")


def get_through_model(model: type[Model], name: str) -> Any:
    """Return the model between two models; None if the user model has no such relation."""
    try:
        field: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    return field.remote_field.through if field.many_to_many else None


def _user_permissions_changed(
    *, instance: Any, action: str, reverse: bool, pk_set: Collection[Any] | None, using: str, **_: Any
) -> None:
    """Publish a change of a user's groups or permissions.

    The change comes from the user, or in `reverse` from the group or permission.
    """
    if action not in POST_ACTIONS or pk_set == set():
        return
    _publish_change(using, None if reverse and pk_set is None else pk_set if reverse else [instance.pk])


def _group_permissions_changed(*, action: str, pk_set: Collection[Any] | None, using: str, **_: Any) -> None:
    if action in POST_ACTIONS and pk_set != set():
        _publish_change(using)


def _group_deleted(*, using: str, **_: Any) -> None:
    _publish_change(using)


def _user_saved(*, instance: Any, created: bool, update_fields: Collection[str] | None, using: str, **_: Any) -> None:
    # A login saves the user with update_fields.
    if not created and (update_fields is None or not PERMISSION_FLAGS.isdisjoint(update_fields)):
        _publish_change(using, [instance.pk])


def _publish_change(using: str, users: Collection[Any] | None = None) -> None:
    """Publish that lists changed for `users`, or for all users if None.

    Errors are logged, so that the change itself never fails.
    """
    try:
        drafts = [
            EventDraft(changes_topic(alias), "list_changed", {"kind": kind, "rights": "changed", **target})
            for alias in conf.get_settings().servers
            for kind in _get_restricted_kinds(alias)
            for target in (
                [{}] if users is None or len(users) > MAX_NAMED_USERS else [{"user": str(pk)} for pk in users]
            )
        ]
        if drafts:
            # Before the notification, so that an immediate request of a client reads the new permissions.
            transaction.on_commit(invalidate_permissions, using=using, robust=True)
            wiring.get_event_publisher().publish_on_commit(*drafts, using=using)
    except Exception:
        logger.exception("Notifying clients of changed permissions failed")


def _get_restricted_kinds(alias: str) -> list[str]:
    """Return the kinds of lists of a server that differ between users."""
    server = wiring.get_server(alias)
    provided = {name for provider in server.providers for name in provider.get_permission_dependent()}
    kinds = [kind.capability for kind in KINDS if kind.capability in provided or server.listings.get_restricted(kind)]
    return list(dict.fromkeys(kinds))

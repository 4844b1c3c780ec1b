"""React to changes of users, permissions, credentials and rules.

Principals that are cached in any process are invalidated, and clients are notified of lists that changed for them.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_save

from mcp_django import conf, wiring
from mcp_django.auth.authentication.principal_cache import PrincipalPredicate, invalidate, match_all, match_user
from mcp_django.auth.authorization.rule_cache import RULE_CACHE
from mcp_django.auth.principal import invalidate_permissions
from mcp_django.models import ExternalIdentity, PersonalAccessToken, ScopeGrant, StoredState, ToolPolicy
from mcp_django.models.commit_hooks import call_on_commit
from mcp_django.models.rows import RULES_PK
from mcp_django.notifications.publish import log_failure
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.events.event_log import EventDraft
from mcp_django.server.execution.lists import KINDS
from mcp_django.server.primitives.base import Primitive

logger = get_logger("mcp_django.events")

MAX_NAMED_USERS = 20
"""Maximum number of users named one by one; for more users, all clients are notified."""
PERMISSION_FLAGS = frozenset({"is_active", "is_superuser"})
POST_ACTIONS = frozenset({"post_add", "post_remove", "post_clear"})


def connect() -> None:
    """Connect to the signals of users, groups, permissions, credentials and rules, fixtures included.

    Called once, when the project starts.
    """
    users = get_user_model()
    receivers: list[tuple[Any, Callable[..., None], Any]] = [
        (post_save, _token_saved, PersonalAccessToken),
        (post_delete, _token_deleted, PersonalAccessToken),
        (post_save, _identity_saved, ExternalIdentity),
        (post_delete, _identity_deleted, ExternalIdentity),
        (post_save, _user_saved, users),
        (post_delete, _user_deleted, users),
        (post_save, _grant_changed, ScopeGrant),
        (post_delete, _grant_changed, ScopeGrant),
        (post_save, _rule_changed, ToolPolicy),
        (post_delete, _rule_changed, ToolPolicy),
        (m2m_changed, _groups_changed, _get_through_model(users, "groups")),
        (m2m_changed, _user_permissions_changed, _get_through_model(users, "user_permissions")),
    ]
    if apps.is_installed("django.contrib.auth"):
        groups = apps.get_model("auth", "Group")
        receivers += [
            (m2m_changed, _group_permissions_changed, _get_through_model(groups, "permissions")),
            (post_delete, _group_deleted, groups),
        ]
    for signal, receiver, sender in receivers:
        if sender is not None:
            signal.connect(receiver, sender=sender, dispatch_uid=f"mcp_django.access.{receiver.__name__}")


def _get_through_model(model: type[Model], name: str) -> Any:
    """Return the model between two models; None if the user model has no such relation."""
    try:
        field: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    return field.remote_field.through if field.many_to_many else None


def _token_saved(*, instance: PersonalAccessToken, created: bool, using: str, **_: Any) -> None:
    if not created:
        _token_deleted(instance=instance, using=using)


def _token_deleted(*, instance: PersonalAccessToken, using: str, **_: Any) -> None:
    pk = instance.pk  # a deleted instance has no primary key after the commit
    invalidate(
        lambda principal: principal.kind == "token" and principal.token_id == pk, using=using, user_pk=instance.user_id
    )


def _identity_saved(*, instance: ExternalIdentity, created: bool, using: str, **_: Any) -> None:
    """Invalidate the principals of a changed identity.

    A new identity concerns no cached principal. A change concerns the principals of the subject only, not its new user.
    """
    if not created:
        invalidate(_match_subject(instance), using=using)


def _identity_deleted(*, instance: ExternalIdentity, using: str, **_: Any) -> None:
    invalidate(_match_subject(instance), using=using, user_pk=instance.user_id)


def _match_subject(identity: ExternalIdentity) -> PrincipalPredicate:
    issuer, subject = identity.issuer, identity.subject
    return lambda principal: (principal.issuer, principal.subject) == (issuer, subject)


def _user_saved(*, instance: Any, created: bool, update_fields: Collection[str] | None, using: str, **_: Any) -> None:
    """Handle the deactivation of a user, a new password, or a change of its flags.

    Users are saved for many reasons, including each login, which names its `update_fields`.
    `AbstractBaseUser.set_password` keeps the raw password on the instance until the save has finished.
    """
    if created:
        return
    if not instance.is_active or getattr(instance, "_password", None) is not None:
        _invalidate_users([instance.pk], using)
    if update_fields is None or not PERMISSION_FLAGS.isdisjoint(update_fields):
        _publish_changed_lists("permissions", _get_restricted_kinds, using, [instance.pk])


def _user_deleted(*, instance: Any, using: str, **_: Any) -> None:
    _invalidate_users([instance.pk], using)


def _groups_changed(*, using: str, **change: Any) -> None:
    """Handle a change of a user's groups, which determine scopes and permissions."""
    users = _list_changed_users(**change)
    _invalidate_users(users, using)
    _publish_changed_lists("permissions", _get_restricted_kinds, using, users)


def _user_permissions_changed(*, using: str, **change: Any) -> None:
    _publish_changed_lists("permissions", _get_restricted_kinds, using, _list_changed_users(**change))


def _list_changed_users(
    *, instance: Any, action: str, reverse: bool, pk_set: Collection[Any] | None, **_: Any
) -> Collection[Any] | None:
    """Return the keys of the users that a change of a relation concerns; None for all.

    The change comes from the user, or in `reverse` from the group or permission.
    """
    if action not in POST_ACTIONS or pk_set == set():
        return []
    return pk_set if reverse else [instance.pk]


def _group_permissions_changed(*, action: str, pk_set: Collection[Any] | None, using: str, **_: Any) -> None:
    if action in POST_ACTIONS and pk_set != set():
        _publish_changed_lists("permissions", _get_restricted_kinds, using, None)


def _group_deleted(*, using: str, **_: Any) -> None:
    _publish_changed_lists("permissions", _get_restricted_kinds, using, None)


def _grant_changed(*, using: str, **_: Any) -> None:
    invalidate(match_all, using=using)
    _rule_changed(using=using)


def _rule_changed(*, using: str, **_: Any) -> None:
    StoredState.objects.using(using).change_version(RULES_PK)
    RULE_CACHE.invalidate_on_commit(using)
    _publish_changed_lists("policies", _get_ruled_kinds, using, None)


def _invalidate_users(users: Collection[Any] | None, using: str) -> None:
    """Invalidate the cached principals of users, or all of them if None."""
    if users is None:
        invalidate(match_all, using=using)
        return
    for pk in users:
        invalidate(match_user(pk), using=using, user_pk=pk)


def _publish_changed_lists(
    subject: str, get_kinds: Callable[[str], Iterable[str]], using: str, users: Collection[Any] | None
) -> None:
    """Publish that lists changed for `users`, or for all users if None.

    Each receiving process clears its caches. The event is published again once no process can still use the old
    permissions. An error is logged.
    """
    if users is None or len(users) > MAX_NAMED_USERS:
        targets: list[dict[str, str]] = [{}]
    else:
        targets = [{"user": str(pk)} for pk in users]
    with log_failure(subject):
        drafts = [
            EventDraft(f"changes:{alias}", "list_changed", {"kind": kind, "rights": "changed", **target})
            for alias in conf.get_settings().servers
            for kind in get_kinds(alias)
            for target in targets
        ]
        if drafts:
            # Before the notification, so that an immediate request of a client reads the new permissions.
            call_on_commit(
                invalidate_permissions,
                using=using,
                logger=logger,
                failure="Failed to discard permissions after a commit",
            )
            wiring.get_services().event_publisher.publish_on_commit(*drafts, using=using)


def _get_restricted_kinds(alias: str) -> list[str]:
    """Return the kinds of lists of a server that differ between users."""
    server = wiring.get_server(alias)
    provided = {name for provider in server.providers for name in provider.get_permission_dependent()}
    kinds = [kind.capability for kind in KINDS if kind.capability in provided or server.listings.get_restricted(kind)]
    return list(dict.fromkeys(kinds))


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

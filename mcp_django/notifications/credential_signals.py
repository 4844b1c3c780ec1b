"""Invalidate cached principals in all processes when credentials or users change."""

from collections.abc import Collection
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models.signals import m2m_changed, post_delete, post_save

from mcp_django.auth.authentication.principal_cache import PrincipalPredicate, invalidate, match_all, match_user
from mcp_django.models import ExternalIdentity, PersonalAccessToken, ScopeGrant
from mcp_django.notifications.permission_signals import POST_ACTIONS, get_through_model


def connect() -> None:
    """Connect to the signals of tokens, identities, users and scope grants.

    Called once, when the project starts.
    """
    users = get_user_model()
    _connect(post_save, _token_saved, PersonalAccessToken)
    _connect(post_delete, _token_deleted, PersonalAccessToken)
    _connect(post_save, _identity_saved, ExternalIdentity)
    _connect(post_delete, _identity_deleted, ExternalIdentity)
    _connect(post_save, _user_saved, users)
    _connect(post_delete, _user_deleted, users)
    _connect(post_save, _grant_changed, ScopeGrant)
    _connect(post_delete, _grant_changed, ScopeGrant)

    groups = get_through_model(users, "groups")
    if groups is not None:
        _connect(m2m_changed, _groups_changed, groups)


def _connect(signal: Any, receiver: Any, sender: Any) -> None:
    signal.connect(receiver, sender=sender, dispatch_uid=f"mcp_django.credentials.{receiver.__name__}")


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


def _user_saved(*, instance: Any, created: bool, using: str, **_: Any) -> None:
    """Invalidate the principals of a user who was deactivated or has a new password.

    Users are saved for many reasons, including each login. `AbstractBaseUser.set_password` keeps the raw password on
    the instance until the save has finished.
    """
    if not created and (not instance.is_active or getattr(instance, "_password", None) is not None):
        _user_deleted(instance=instance, using=using)


def _user_deleted(*, instance: Any, using: str, **_: Any) -> None:
    invalidate(match_user(instance.pk), using=using, user_pk=instance.pk)


def _grant_changed(*, using: str, **_: Any) -> None:
    invalidate(match_all, using=using)


def _groups_changed(
    *, instance: Any, action: str, reverse: bool, pk_set: Collection[Any] | None, using: str, **_: Any
) -> None:
    """Invalidate the principals of users whose groups changed.

    Group membership determines which scopes a user may hold.
    """
    if action not in POST_ACTIONS or pk_set == set():
        return
    users = pk_set if reverse else [instance.pk]
    if users is None:
        invalidate(match_all, using=using)
        return
    for pk in users:
        invalidate(match_user(pk), using=using, user_pk=pk)

"""Invalidate cached principals in all processes when credentials or users change."""

from collections.abc import Collection
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models.signals import m2m_changed, post_delete, post_save

from mcp_django.auth.authentication.principal_cache import Concerned, anybody, forget, of_user
from mcp_django.models import ExternalIdentity, PersonalAccessToken, ScopeGrant
from mcp_django.notifications.permission_signals import AFTER, through


def connect() -> None:
    """Connect to the signals of tokens, identities, users and scope grants.

    Called once, when the project starts.
    """
    users = get_user_model()
    _listen(post_save, _token_saved, PersonalAccessToken)
    _listen(post_delete, _token_deleted, PersonalAccessToken)
    _listen(post_save, _identity_saved, ExternalIdentity)
    _listen(post_delete, _identity_deleted, ExternalIdentity)
    _listen(post_save, _user_saved, users)
    _listen(post_delete, _user_deleted, users)
    _listen(post_save, _grant_changed, ScopeGrant)
    _listen(post_delete, _grant_changed, ScopeGrant)

    groups = through(users, "groups")
    if groups is not None:
        _listen(m2m_changed, _groups_changed, groups)


def _listen(signal: Any, receiver: Any, sender: Any) -> None:
    signal.connect(receiver, sender=sender, dispatch_uid=f"mcp_django.credentials.{receiver.__name__}")


def _token_saved(*, instance: PersonalAccessToken, created: bool, using: str, **_: Any) -> None:
    if not created:
        _token_deleted(instance=instance, using=using)


def _token_deleted(*, instance: PersonalAccessToken, using: str, **_: Any) -> None:
    pk = instance.pk  # a deleted instance has no primary key after the commit
    forget(
        lambda principal: principal.kind == "token" and principal.token_id == pk, using=using, owner=instance.user_id
    )


def _identity_saved(*, instance: ExternalIdentity, created: bool, using: str, **_: Any) -> None:
    """Invalidate the principals of a changed identity.

    A new identity concerns no cached principal. A change concerns the principals of the subject only, not its new user.
    """
    if not created:
        forget(_subject(instance), using=using)


def _identity_deleted(*, instance: ExternalIdentity, using: str, **_: Any) -> None:
    forget(_subject(instance), using=using, owner=instance.user_id)


def _subject(identity: ExternalIdentity) -> Concerned:
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
    forget(of_user(instance.pk), using=using, owner=instance.pk)


def _grant_changed(*, using: str, **_: Any) -> None:
    forget(anybody, using=using)


def _groups_changed(
    *, instance: Any, action: str, reverse: bool, pk_set: Collection[Any] | None, using: str, **_: Any
) -> None:
    """Invalidate the principals of users whose groups changed.

    Group membership determines which scopes a user may hold.
    """
    if action not in AFTER or pk_set == set():
        return
    users = pk_set if reverse else [instance.pk]
    if users is None:
        forget(anybody, using=using)
        return
    for pk in users:
        forget(of_user(pk), using=using, owner=pk)

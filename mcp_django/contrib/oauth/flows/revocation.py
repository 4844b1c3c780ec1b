"""Ending tokens. Each function is one transaction, and what it ends is good for nothing when that is committed:
receivers of the rows' signals tell those who have verified a token before.
"""

from typing import Any
from uuid import UUID

from django.db import router, transaction
from django.utils import timezone

from mcp_django.contrib.oauth.models import Consent, TokenFamily
from mcp_django.contrib.oauth.tokens.token_format import digest
from mcp_django.contrib.oauth.toolkit_compat import access_tokens, at_source, grants, refresh_tokens


def _atomic() -> Any:
    return transaction.atomic(using=router.db_for_write(access_tokens()))


def end_family(family: UUID | None) -> None:
    """End all tokens that came from one authorization."""
    if family is None:
        return
    with _atomic():
        _end_families(TokenFamily.objects.filter(pk=family), token_family=family)


def end_code(family: UUID | None, access_token_hash: str) -> None:
    """End what a code gave."""
    with _atomic():
        if family is not None:
            _end_families(TokenFamily.objects.filter(pk=family), token_family=family)
        at_source(access_tokens()).filter(token_checksum=access_token_hash).delete()


def end_token(token: str, application: Any) -> None:
    """Revoke a token of `application` at its own wish (RFC 7009, section 2.1). A refresh token takes along all that
    came from the same authorization; an access token the refresh token that it came with. One that is unknown, or
    another client's, is left as it is.
    """
    checksum = {"token_checksum": digest(token), "application": application}
    refresh = at_source(refresh_tokens()).filter(**checksum).first()
    if refresh is not None and refresh.token_family is not None:
        end_family(refresh.token_family)
        return
    with _atomic():
        row = at_source(access_tokens()).filter(**checksum).first()
        if refresh is not None:
            refresh.revoke()
        if row is not None:
            now = timezone.now()
            at_source(refresh_tokens()).filter(access_token=row, revoked=None).update(revoked=now)
            row.delete()


def withdraw(user: Any, application: Any) -> None:
    """Let a client act for `user` no more: consents, codes and tokens end."""
    with _atomic():
        Consent.objects.filter(user=user, application=application, revoked=None).update(revoked=timezone.now())
        _end(user=user, application=application)


def end_at(user: Any, application: Any, resource: str) -> None:
    """End what a client has of `user` for one resource; both by primary key. A family goes whole, with what else it was
    for: the user is asked again.
    """
    with _atomic():
        whose = {"user": user, "application": application}
        for grant in at_source(grants()).filter(**whose):
            if resource in grant.resource:
                grant.delete()
        live = at_source(refresh_tokens()).filter(**whose, revoked=None)
        families = {row.token_family for row in live if resource in row.resource}
        _end_families(TokenFamily.objects.filter(pk__in=families), **whose, token_family__in=families)
        for row in at_source(access_tokens()).filter(**whose):
            if resource in row.resource:
                row.delete()


def end_client(application: Any) -> None:
    """End the codes and tokens of a client, of all users. Their consents stay."""
    with _atomic():
        _end(application=application)


def end_user(user: Any) -> None:
    """End the codes and tokens of a user, of all clients."""
    with _atomic():
        _end(user=user)


def _end(**whose: Any) -> None:
    # The codes first: an exchange that goes on at the same time has taken its own away, so that it is waited for, and
    # the family that it begins is seen below.
    at_source(grants()).filter(**whose).delete()
    _end_families(TokenFamily.objects.filter(**whose), **whose)
    at_source(access_tokens()).filter(**whose).delete()


def _end_families(families: Any, **whose: Any) -> None:
    now = timezone.now()
    # Whoever rotates a token of a family writes its row first, so that a rotation is either over or will not be.
    families.filter(revoked=None).update(revoked=now)
    refresh = at_source(refresh_tokens()).filter(**whose)
    at_source(access_tokens()).filter(refresh_token__in=refresh).delete()
    refresh.filter(revoked=None).update(revoked=now)

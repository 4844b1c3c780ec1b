"""Revocation of tokens, and single-use authorization codes.

Each function runs in one transaction, and the tokens are invalid from its commit. Receivers of the rows' signals
invalidate cached principals.

A code that is used twice was intercepted, so the tokens it gave are revoked (OAuth 2.1, section 4.1.3).
"""

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, router, transaction
from django.utils import timezone

from mcp_django.contrib.oauth.models import Consent, TokenFamily, UsedCode
from mcp_django.contrib.oauth.tokens.token_format import digest
from mcp_django.contrib.oauth.toolkit_compat import (
    get_access_token_model,
    get_grant_model,
    get_primary_queryset,
    get_refresh_token_model,
)

USED_CODE_LIFETIME: Final = timedelta(days=1)
"""Time for which a used code is stored. Later uses are rejected as an unknown code."""


def _atomic() -> Any:
    return transaction.atomic(using=router.db_for_write(get_access_token_model()))


def revoke_family(family: UUID | None) -> None:
    """Revoke all tokens of one authorization."""
    if family is None:
        return
    with _atomic():
        _revoke_families(TokenFamily.objects.filter(pk=family), token_family=family)


def revoke_token(token: str, application: Any) -> None:
    """Revoke a token at the request of its client (RFC 7009, section 2.1).

    A refresh token revokes all tokens of its authorization. An access token revokes the refresh token issued with it.
    Unknown tokens and tokens of other clients are ignored.
    """
    checksum = {"token_checksum": digest(token), "application": application}
    refresh = get_primary_queryset(get_refresh_token_model()).filter(**checksum).first()
    if refresh is not None and refresh.token_family is not None:
        revoke_family(refresh.token_family)
        return

    with _atomic():
        row = get_primary_queryset(get_access_token_model()).filter(**checksum).first()
        if refresh is not None:
            refresh.revoke()
        if row is not None:
            now = timezone.now()
            get_primary_queryset(get_refresh_token_model()).filter(access_token=row, revoked=None).update(revoked=now)
            row.delete()


def withdraw_access(user: Any, application: Any) -> None:
    """Withdraw a client's access for `user`: consents, codes and tokens."""
    with _atomic():
        Consent.objects.filter(user=user, application=application, revoked=None).update(revoked=timezone.now())
        _revoke_all(user=user, application=application)


def revoke_resource_access(user: Any, application: Any, resource: str) -> None:
    """Revoke a client's access to one resource of `user`; both are primary keys.

    A family is revoked with all of its resources, and the user must consent again.
    """
    with _atomic():
        filters = {"user": user, "application": application}
        for grant in get_primary_queryset(get_grant_model()).filter(**filters):
            if resource in grant.resource:
                grant.delete()
        live = get_primary_queryset(get_refresh_token_model()).filter(**filters, revoked=None)
        families = {row.token_family for row in live if resource in row.resource}
        _revoke_families(TokenFamily.objects.filter(pk__in=families), **filters, token_family__in=families)
        for row in get_primary_queryset(get_access_token_model()).filter(**filters):
            if resource in row.resource:
                row.delete()


def revoke_client(application: Any) -> None:
    """Revoke the codes and tokens of a client for all users. Consents stay."""
    with _atomic():
        _revoke_all(application=application)


def revoke_user(user: Any) -> None:
    """Revoke the codes and tokens of a user for all clients."""
    with _atomic():
        _revoke_all(user=user)


def _revoke_all(**filters: Any) -> None:
    # Codes first: a concurrent exchange has deleted its code, so this statement waits for it. The family that it
    # creates is then visible below.
    get_primary_queryset(get_grant_model()).filter(**filters).delete()
    _revoke_families(TokenFamily.objects.filter(**filters), **filters)
    get_primary_queryset(get_access_token_model()).filter(**filters).delete()


def _revoke_families(families: Any, **filters: Any) -> None:
    now = timezone.now()
    # A rotation writes the row of the family first, so each rotation has either finished or will fail.
    families.filter(revoked=None).update(revoked=now)
    refresh = get_primary_queryset(get_refresh_token_model()).filter(**filters)
    get_primary_queryset(get_access_token_model()).filter(refresh_token__in=refresh).delete()
    refresh.filter(revoked=None).update(revoked=now)


def claim_code(code: str, application: Any) -> UsedCode | None:
    """Mark a code as used, in the transaction that creates its tokens.

    Returns None if it was used before. In that case the transaction waited for the first use, whose tokens are visible.
    """
    now = timezone.now()
    try:
        with transaction.atomic(using=router.db_for_write(UsedCode)):
            return UsedCode.objects.create(
                code_hash=digest(code), application=application, used=now, expires=now + USED_CODE_LIFETIME
            )
    except IntegrityError:
        return None


def record_tokens(used: UsedCode, *, family: UUID | None, access_token: str) -> None:
    """Save the tokens that a code gave."""
    used.family, used.access_token_hash = family, digest(access_token)
    used.save(update_fields=["family", "access_token_hash"])


def revoke_if_used(code: str, application: Any) -> bool:
    """Return True if this client used the code before, and revoke the tokens it gave."""
    used = UsedCode.objects.filter(code_hash=digest(code), application=application).first()
    if used is None:
        return False
    with _atomic():
        revoke_family(used.family)
        get_primary_queryset(get_access_token_model()).filter(token_checksum=used.access_token_hash).delete()
    return True


def delete_expired_codes() -> None:
    """Delete the expired rows of used codes."""
    UsedCode.objects.filter(expires__lte=timezone.now()).delete()

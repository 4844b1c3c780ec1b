"""Single-use authorization codes.

A code that is used twice was intercepted, so the tokens it gave are revoked (OAuth 2.1, section 4.1.3).
"""

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, router, transaction
from django.utils import timezone

from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.models import UsedCode
from mcp_django.contrib.oauth.tokens.token_format import digest

USED_CODE_LIFETIME: Final = timedelta(days=1)
"""Time for which a used code is stored. Later uses are rejected as an unknown code."""


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
    revocation.revoke_code_tokens(used.family, used.access_token_hash)
    return True


def delete_expired() -> None:
    """Delete the expired rows of used codes."""
    UsedCode.objects.filter(expires__lte=timezone.now()).delete()

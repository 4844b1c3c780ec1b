"""Authorization codes: good once. A code that comes again has been in other hands, so that what it gave is revoked
(OAuth 2.1, section 4.1.3).
"""

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, router, transaction
from django.utils import timezone

from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.models import UsedCode
from mcp_django.contrib.oauth.tokens.token_format import digest

REMEMBERED: Final = timedelta(days=1)
"""How long a used code is known: one that comes later is refused like any that never was."""


def claim(code: str, application: Any) -> UsedCode | None:
    """Use up a code, in a transaction that goes on to make its tokens. None when it was used before; then the
    transaction has seen to the end what the first use made.
    """
    now = timezone.now()
    try:
        with transaction.atomic(using=router.db_for_write(UsedCode)):
            return UsedCode.objects.create(
                code_hash=digest(code), application=application, used=now, expires=now + REMEMBERED
            )
    except IntegrityError:
        return None


def note(used: UsedCode, *, family: UUID | None, access_token: str) -> None:
    """Keep what a code gave."""
    used.family, used.access_token_hash = family, digest(access_token)
    used.save(update_fields=["family", "access_token_hash"])


def was_used(code: str, application: Any) -> bool:
    """Did this client use the code before? Then what it gave is revoked."""
    used = UsedCode.objects.filter(code_hash=digest(code), application=application).first()
    if used is None:
        return False
    revocation.end_code(used.family, used.access_token_hash)
    return True


def clear_expired() -> None:
    """Forget the codes that nobody has to know any more."""
    UsedCode.objects.expired().delete()

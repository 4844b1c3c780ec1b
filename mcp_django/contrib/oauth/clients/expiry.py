"""Deletion of unused clients that registered themselves or are described by documents.

Without it, strangers could fill the database. A client described by a document is created again by its next request.
Clients with a valid token or code are kept. Clients that an operator approved, trusted, blocked or pinned are kept too:
a blocked client would return unblocked.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import models, router, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.toolkit_compat import access_tokens, applications, grants, refresh_tokens

ABANDONED = timedelta(hours=1)
"""Age after which an unused self-registered client is deleted if the limit is reached."""
_MOST_ABANDONED = 100
"""Maximum number of abandoned clients deleted at once, because a request waits for it."""


def clear(*, days: float | None = None, dry_run: bool = False) -> int:
    """Delete the clients not used for `days` days, and return their number.

    The default is `unused_days` of the settings. With `dry_run` they are only counted.
    """
    before = timezone.now() - timedelta(days=get_settings().unused_days if days is None else days)
    return _delete(_unused(before), dry_run=dry_run)


def clear_abandoned() -> int:
    """Delete the oldest clients that registered a while ago and were never used.

    Returns:
        The number of deleted clients, which is limited.
    """
    never = _unused(timezone.now() - ABANDONED).filter(last_used=None)
    for model in (access_tokens(), refresh_tokens()):
        never = never.exclude(Exists(_of_client(model)))
    return _delete(never, most=_MOST_ABANDONED)


def _unused(before: datetime) -> models.QuerySet[ClientProfile]:
    now = timezone.now()
    refreshed = now - timedelta(seconds=get_settings().refresh_token)

    good = (
        Exists(_of_client(access_tokens()).filter(expires__gt=now)),
        Exists(_of_client(refresh_tokens()).filter(revoked=None, created__gt=refreshed)),
        Exists(_of_client(grants()).filter(expires__gt=now)),
    )

    kept = Q(blocked=True) | Q(trusted=True)
    pinned = Q(source=ClientProfile.Source.DOCUMENT, application__cimd_expires_at=None)
    found = ClientProfile.objects.self_registered().filter(created__lt=before).exclude(kept).exclude(pinned)
    found = found.filter(Q(last_used=None) | Q(last_used__lt=before))
    for tokens in good:
        found = found.exclude(tokens)
    return found


def _of_client(model: Any) -> Any:
    return model._base_manager.filter(application=OuterRef("application"))


def _delete(unused: models.QuerySet[ClientProfile], *, dry_run: bool = False, most: int | None = None) -> int:
    model = applications()
    using = router.db_for_write(model)
    keys = list(unused.order_by("created", "pk").values_list("application_id", flat=True)[:most])
    if dry_run:
        return len(keys)

    deleted = 0
    for key in keys:
        with transaction.atomic(using=using):
            # Token creation takes the same lock. If it came first, the client is in use and is kept.
            locked = model._base_manager.using(using).select_for_update(of=("self",)).filter(pk=key).first()
            if locked is not None and unused.filter(application_id=key).exists():
                locked.delete()
                deleted += 1
    return deleted

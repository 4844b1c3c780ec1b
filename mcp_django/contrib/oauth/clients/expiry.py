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
from mcp_django.contrib.oauth.toolkit_compat import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

ABANDONED_AFTER = timedelta(hours=1)
"""Age after which an unused self-registered client is deleted if the limit is reached."""
_MAX_ABANDONED_DELETIONS = 100
"""Maximum number of abandoned clients deleted at once, because a request waits for it."""


def delete_unused(*, days: float | None = None, dry_run: bool = False) -> int:
    """Delete the clients not used for `days` days, and return their number.

    The default is `unused_days` of the settings. With `dry_run` they are only counted.
    """
    before = timezone.now() - timedelta(days=get_settings().unused_days if days is None else days)
    return _delete(_find_unused(before), dry_run=dry_run)


def delete_abandoned() -> int:
    """Delete the oldest clients that registered a while ago and were never used.

    Returns:
        The number of deleted clients, which is limited.
    """
    never_used = _find_unused(timezone.now() - ABANDONED_AFTER).filter(last_used=None)
    for model in (get_access_token_model(), get_refresh_token_model()):
        never_used = never_used.exclude(Exists(_filter_by_client(model)))
    return _delete(never_used, limit=_MAX_ABANDONED_DELETIONS)


def _find_unused(before: datetime) -> models.QuerySet[ClientProfile]:
    now = timezone.now()
    refreshed = now - timedelta(seconds=get_settings().refresh_token)

    usable_tokens = (
        Exists(_filter_by_client(get_access_token_model()).filter(expires__gt=now)),
        Exists(_filter_by_client(get_refresh_token_model()).filter(revoked=None, created__gt=refreshed)),
        Exists(_filter_by_client(get_grant_model()).filter(expires__gt=now)),
    )

    protected = Q(blocked=True) | Q(trusted=True)
    pinned = Q(source=ClientProfile.Source.DOCUMENT, application__cimd_expires_at=None)
    profiles = ClientProfile.objects.self_registered().filter(created__lt=before).exclude(protected).exclude(pinned)
    profiles = profiles.filter(Q(last_used=None) | Q(last_used__lt=before))
    for tokens in usable_tokens:
        profiles = profiles.exclude(tokens)
    return profiles


def _filter_by_client(model: Any) -> Any:
    return model._base_manager.filter(application=OuterRef("application"))


def _delete(unused: models.QuerySet[ClientProfile], *, dry_run: bool = False, limit: int | None = None) -> int:
    model = get_application_model()
    using = router.db_for_write(model)
    keys = list(unused.order_by("created", "pk").values_list("application_id", flat=True)[:limit])
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

"""Rotation of refresh tokens, which are single-use with a short grace period.

Each refresh creates a new generation and supersedes the presented token (OAuth 2.1, section 4.3.1). Processes of one
client share a refresh token, and several may refresh at the same time. Therefore a superseded token gives further pairs
for `REFRESH_GRACE` seconds, at most `SIBLINGS`; they are siblings of its successor. A token that comes later, or an
older generation, indicates a stolen copy, and the whole family is revoked.

An access token stays valid until it expires when its refresh token is superseded, because another process of the client
may be using it.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from mcp_django.contrib.oauth.models import Rotation, TokenFamily
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.tokens.token_format import digest
from mcp_django.contrib.oauth.toolkit_compat import get_primary_queryset, get_refresh_token_model, set_token


def find_refresh_token(token: str) -> Any:
    """Return the row of a refresh token with its user and access token, or None."""
    # Rows share a hash only if the toolkit reuses a token, which this server never does. The newest row is correct.
    rows = get_primary_queryset(get_refresh_token_model()).filter(token_checksum=digest(token))
    return rows.select_related("access_token", "user").order_by(F("revoked").desc(nulls_first=True)).first()


def is_idle(row: Any) -> bool:
    """Return True if the token has expired because it was not used."""
    return bool(row.created + timedelta(seconds=get_settings().refresh_token) <= timezone.now())


def is_replayed(row: Any) -> bool:
    """Return True if a used or revoked token cannot give a sibling, now or later."""
    if row.revoked is None:
        return row.access_token_id is None
    state = Rotation.objects.filter(pk=row.pk).first()
    return state is None or not _can_have_sibling(state)


def claim_rotation(row: Any) -> int | None:
    """Use a refresh token and return the generation of its successor.

    Returns None if the token cannot be used and its family must be revoked. Call it in the transaction that creates the
    successor. The first statement writes the family's row, so that concurrent rotations run one after the other on
    every database.
    """
    now = timezone.now()
    if not TokenFamily.objects.filter(pk=row.token_family, revoked=None).update(rotated=now):
        return None
    state = Rotation.objects.filter(pk=row.pk).first()
    if state is None:
        return None
    unused_token = get_primary_queryset(get_refresh_token_model()).filter(pk=row.pk, revoked=None)
    if unused_token.filter(access_token__isnull=False).update(revoked=now):
        Rotation.objects.filter(pk=row.pk).update(superseded=now)
        return state.generation + 1

    if not _can_have_sibling(state):
        return None
    Rotation.objects.filter(pk=row.pk).update(siblings=F("siblings") + 1)
    return state.generation + 1


def delete_idle_families() -> None:
    """Delete the families whose tokens have expired because they were not used."""
    since = timezone.now() - timedelta(seconds=get_settings().refresh_token)
    TokenFamily.objects.filter(rotated__lte=since).delete()


def save_refresh_token(token: str, *, access_token: Any, family: UUID, generation: int) -> Any:
    """Create the row of a new refresh token that belongs to `access_token`."""
    model = get_refresh_token_model()
    row = model(
        user=access_token.user,
        application=access_token.application,
        access_token=access_token,
        token_family=family,
        resource=access_token.resource,
    )

    set_token(row, token)
    row.save()
    Rotation.objects.create(refresh_token=row, family_id=family, generation=generation)
    return row


def _can_have_sibling(state: Rotation) -> bool:
    options = get_settings()
    since = timezone.now() - timedelta(seconds=options.refresh_grace)
    if state.superseded is None or state.superseded <= since or state.siblings >= options.siblings:
        return False
    later = Rotation.objects.filter(family=state.family_id, generation__gt=state.generation + 1)
    return not later.exists()

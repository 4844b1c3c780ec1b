"""Refresh tokens are good once, and then, for a moment, for siblings.

Each refresh makes a new generation, and supersedes the token that was shown (OAuth 2.1, section 4.3.1). Processes of
one client share a refresh token, and several refresh at the same time; so for `REFRESH_GRACE` seconds a superseded
token gives further pairs, siblings of its successor, up to `SIBLINGS`. A token that comes later, or of a generation
before the last, is one that somebody has kept: the whole family ends.

An access token stays good until it expires when its refresh token is superseded: another process of the client may be
in the middle of a call with it.
"""

import uuid
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from mcp_django.contrib.oauth.models import Rotation, TokenFamily
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.tokens.token_format import digest
from mcp_django.contrib.oauth.toolkit_compat import at_source, refresh_tokens, set_token


def find(token: str) -> Any:
    """The row of a refresh token with its user and access token; None when there is none."""
    # Rows share a hash only where the toolkit kept a token in place, which is not done here; the newest is meant.
    rows = at_source(refresh_tokens()).filter(token_checksum=digest(token))
    return rows.select_related("access_token", "user").order_by(F("revoked").desc(nulls_first=True)).first()


def is_idle(row: Any) -> bool:
    """Was the token not used for so long that it is good for nothing any more?"""
    return bool(row.created + timedelta(seconds=get_settings().refresh_token) <= timezone.now())


def is_replayed(row: Any) -> bool:
    """Has the token been used or revoked before, so that it cannot even give a sibling? It never can again, then."""
    if row.revoked is None:
        return row.access_token_id is None
    state = Rotation.objects.filter(pk=row.pk).first()
    return state is None or not _may_have_sibling(state)


def begin(user: Any, application: Any) -> UUID:
    """A new family, in the transaction of its first tokens."""
    return TokenFamily.objects.create(id=uuid.uuid4(), user=user, application=application).pk


def take_turn(row: Any) -> int | None:
    """Use a refresh token, in a transaction that goes on to make its successor, of the generation that is returned.

    None when it cannot be used: then the family is to be ended. The first statement is a write on the family's row, so
    that parallel turns come one after the other, on every database.
    """
    now = timezone.now()
    if not TokenFamily.objects.filter(pk=row.token_family, revoked=None).update(rotated=now):
        return None
    state = Rotation.objects.filter(pk=row.pk).first()
    if state is None:
        return None
    fresh = at_source(refresh_tokens()).filter(pk=row.pk, revoked=None)
    if fresh.filter(access_token__isnull=False).update(revoked=now):
        Rotation.objects.filter(pk=row.pk).update(superseded=now)
        return state.generation + 1
    if not _may_have_sibling(state):
        return None
    Rotation.objects.filter(pk=row.pk).update(siblings=F("siblings") + 1)
    return state.generation + 1


def clear_idle() -> None:
    """Forget the families whose tokens were not used for so long that they are good for nothing any more."""
    since = timezone.now() - timedelta(seconds=get_settings().refresh_token)
    TokenFamily.objects.filter(rotated__lte=since).delete()


def keep(token: str, *, access_token: Any, family: UUID, generation: int) -> Any:
    """Make the row of a new refresh token, which stands beside `access_token`."""
    model = refresh_tokens()
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


def _may_have_sibling(state: Rotation) -> bool:
    options = get_settings()
    since = timezone.now() - timedelta(seconds=options.refresh_grace)
    if state.superseded is None or state.superseded <= since or state.siblings >= options.siblings:
        return False
    later = Rotation.objects.filter(family=state.family_id, generation__gt=state.generation + 1)
    return not later.exists()

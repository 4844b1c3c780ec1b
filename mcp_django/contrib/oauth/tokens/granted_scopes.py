"""Scopes of a grant: those of a principal whose token is not known, or has expired since."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.tokens.credentials import find_application
from mcp_django.contrib.oauth.tokens.resource_indicators import filter_allowed
from mcp_django.contrib.oauth.toolkit_compat import (
    get_access_token_model,
    get_application_model,
    get_primary_queryset,
    get_refresh_token_model,
)
from mcp_django.extensions.callers import DjangoPrincipal


def find_granted_scopes(principal: DjangoPrincipal) -> frozenset[str] | None:
    """Return the scopes that the grant behind a principal gives now; None if it has ended.

    Runs two statements. A grant of a user lasts as long as its client could refresh the tokens. A grant of client
    credentials is the trust of the operator.
    """
    application = find_application(principal.client_id)
    if application is None or principal.audience not in filter_allowed(application, [principal.audience or ""]):
        return None
    if application.authorization_grant_type == get_application_model().GRANT_CLIENT_CREDENTIALS:
        scopes = _find_trusted_scopes(principal, application)
    else:
        scopes = _find_user_scopes(principal, application)
    if scopes is None:
        return None
    allowed = getattr(getattr(application, "mcp_profile", None), "allowed_scopes", None)
    return scopes if allowed is None else scopes & frozenset(allowed)


def _find_user_scopes(principal: DjangoPrincipal, application: Any) -> frozenset[str] | None:
    """Return the scopes of the live tokens of a family: several may be in use at once."""
    since = timezone.now() - timedelta(seconds=get_settings().refresh_token)
    live = get_primary_queryset(get_refresh_token_model()).filter(
        application=application, user=principal.subject, revoked=None, created__gt=since, access_token__isnull=False
    )
    if principal.grant_id is not None:
        live = live.filter(token_family=principal.grant_id)
    tokens = [row.access_token for row in live.select_related("access_token")]
    found = [token.scope.split() for token in tokens if principal.audience in token.resource]
    return frozenset().union(*found) if found else None


def _find_trusted_scopes(principal: DjangoPrincipal, application: Any) -> frozenset[str] | None:
    """Return the scopes of a token of client credentials. A revocation deletes its row."""
    profile = getattr(application, "mcp_profile", None)
    if profile is None or not profile.trusted or str(profile.service_user_id) != principal.subject:
        return None
    is_expired = principal.expires_at is not None and principal.expires_at <= timezone.now().timestamp()
    rows = get_primary_queryset(get_access_token_model()).filter(pk=principal.token_id, application=application)
    scope: str | None = rows.values_list("scope", flat=True).first()
    if scope is None:
        return principal.scopes if is_expired else None
    return frozenset(scope.split())

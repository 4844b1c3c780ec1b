"""Connected applications: the clients with access to a user's account."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from mcp_django.contrib.oauth import toolkit_compat
from mcp_django.contrib.oauth.clients.display import ClientDisplay, build_client_display, get_redirect_hosts
from mcp_django.contrib.oauth.clients.display_names import get_resource_name
from mcp_django.contrib.oauth.flows.scope_choices import ScopeChoice, build_scope_choices
from mcp_django.contrib.oauth.models import Consent


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedApp:
    """Client of a user, with all resources that it may access."""

    pk: str
    """Key in forms, valid among the user's own connected applications only."""
    application: Any
    client: ClientDisplay
    resource_names: tuple[str, ...]
    offers: tuple[ScopeChoice, ...]
    """Scopes of the last consents and of valid older tokens."""
    targets: tuple[str, ...]
    """Hosts of the redirect URIs."""
    created: datetime
    last_used: datetime | None
    """Time of the last token, which is renewed once per access token lifetime during use."""


def get_connected_apps(user: Any) -> list[ConnectedApp]:
    """Return the clients that may act for `user` now, the most recently used first."""
    consents: dict[Any, list[Consent]] = {}
    applications: dict[Any, Any] = {}
    related = ("application", "application__mcp_profile", "application__user")
    for consent in Consent.objects.filter(user=user, revoked=None).select_related(*related):
        consents.setdefault(consent.application_id, []).append(consent)
        applications[consent.application_id] = consent.application

    tokens = _summarize_live_tokens(user)
    missing = [pk for pk in tokens if pk not in applications]
    if missing:
        rows = (
            toolkit_compat.get_application_model().objects.filter(pk__in=missing).select_related("mcp_profile", "user")
        )
        applications.update((application.pk, application) for application in rows)

    apps = [_build_connected_app(one, consents.get(pk, []), tokens.get(pk)) for pk, one in applications.items()]
    return sorted(apps, key=lambda one: one.last_used or one.created, reverse=True)


@dataclass(slots=True)
class _TokenSummary:
    """Summary of the tokens that a client has for the user."""

    scopes: set[str]
    resources: set[str]
    first: datetime
    last: datetime


def _summarize_live_tokens(user: Any) -> dict[Any, _TokenSummary]:
    """Return summaries of the valid tokens by application key."""
    summaries: dict[Any, _TokenSummary] = {}
    access = toolkit_compat.get_access_token_model().objects.filter(user=user, application__isnull=False)
    refresh = toolkit_compat.get_refresh_token_model().objects.filter(
        user=user, revoked=None, access_token__isnull=False
    )
    live = [
        *access.filter(expires__gt=timezone.now()).values_list("application", "created", "scope", "resource"),
        *refresh.values_list("application", "created", "access_token__scope", "access_token__resource"),
    ]

    for application, created, scope, resource in live:
        summary = summaries.setdefault(application, _TokenSummary(set(), set(), created, created))
        summary.scopes.update((scope or "").split())
        summary.resources.update(resource or ())
        summary.first, summary.last = min(summary.first, created), max(summary.last, created)
    return summaries


def _build_connected_app(application: Any, consents: Iterable[Consent], tokens: _TokenSummary | None) -> ConnectedApp:
    scopes = {scope for consent in consents for scope in consent.scopes}
    resources = {consent.resource for consent in consents}
    start_times = [consent.granted for consent in consents]
    if tokens is not None:
        scopes, resources = scopes | tokens.scopes, resources | tokens.resources
        start_times.append(tokens.first)

    return ConnectedApp(
        pk=str(application.pk),
        application=application,
        client=build_client_display(application),
        resource_names=tuple(sorted({get_resource_name(resource) for resource in resources})),
        offers=tuple(build_scope_choices(sorted(scopes))),
        targets=tuple(get_redirect_hosts(application.redirect_uris.split())),
        created=min(start_times),
        last_used=None if tokens is None else tokens.last,
    )

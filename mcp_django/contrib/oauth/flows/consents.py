"""Consents of users: choices of scopes, remembered consents, and connected applications.

A user is not asked again for the same client, resource, redirect URI and scopes, or a subset of them, while the
client's name, host and redirect URIs are unchanged. A client cannot choose to skip the page. Clients on the user's own
machine always require consent, because any program there can claim to be that client (RFC 8252, section 8.6).
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from mcp_django import conf
from mcp_django.auth.authorization.scopes import ScopeHierarchy
from mcp_django.contrib.oauth import redirects, toolkit_compat
from mcp_django.contrib.oauth.clients.display import (
    ClientDisplay,
    build_client_display,
    get_redirect_hosts,
    get_resource_name,
)
from mcp_django.contrib.oauth.models import Consent
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.tokens.scopes import get_declared_scopes, get_offered_scopes


def compute_fingerprint(application: Any) -> str:
    """Return the digest that identifies a client: 64 hexadecimal digits.

    It changes with the name, the host and the redirect URIs.
    """
    uris = sorted(set(application.redirect_uris.split()))
    # The host of a document is part of the client's id.
    identity = json.dumps([application.client_id, application.name, uris])
    return hashlib.sha256(identity.encode()).hexdigest()


def is_remembered(user: Any, application: Any, resources: Sequence[str], scopes: Iterable[str], redirect: str) -> bool:
    """Return True if `user` has allowed all of this before, and no consent is needed.

    `resources` are canonical URLs. `redirect` is the redirect URI of the request.
    """
    if not get_settings().remember_consent or not resources:
        return False
    if redirects.is_native(redirect) and not get_settings().remember_loopback:
        return False

    rows = Consent.objects.filter(
        user=user,
        application=application,
        resource__in=resources,
        redirects_hash=compute_fingerprint(application),
        redirect_digest=_compute_redirect_digest(redirect),
        revoked=None,
        expires__gt=timezone.now(),
    )
    wanted = set(scopes)
    covered = {row.resource for row in rows if wanted <= set(row.scopes)}
    return covered >= set(resources)


def record_consent(user: Any, application: Any, resources: Iterable[str], scopes: Iterable[str], redirect: str) -> None:
    """Save a new consent of `user`, which replaces earlier ones for the same redirect URI.

    `redirect` is the redirect URI that the user saw.
    """
    days, now = get_settings().remember_consent, timezone.now()
    values = {
        "scopes": sorted(set(scopes)),
        "redirects_hash": compute_fingerprint(application),
        "redirect_uri": redirects.remove_loopback_port(redirect),
        "granted": now,
        "expires": now + timedelta(days=days) if days else None,
        "revoked": None,
    }
    for resource in sorted(set(resources)):
        Consent.objects.update_or_create(
            user=user,
            application=application,
            resource=resource,
            redirect_digest=_compute_redirect_digest(redirect),
            defaults=values,
        )


def _compute_redirect_digest(redirect: str) -> str:
    return hashlib.sha256(redirects.remove_loopback_port(redirect).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeChoice:
    """Tick box of one scope."""

    scope: str
    description: str
    includes: tuple[str, ...] = ()
    """Descriptions of all directly or indirectly implied scopes."""
    ticked: bool = True


def build_scope_choices(scopes: Iterable[str], *, ticked: Collection[str] | None = None) -> list[ScopeChoice]:
    """Return the choices for `scopes` in their order.

    `ticked` holds the ticked scopes; None means all.
    """
    descriptions = get_declared_scopes()
    hierarchy = ScopeHierarchy(conf.get_settings().scope_implies)
    return [
        ScopeChoice(
            scope=scope,
            description=descriptions.get(scope, scope),
            includes=tuple(
                descriptions.get(one, one) for one in sorted(hierarchy.expand(frozenset({scope})) - {scope})
            ),
            ticked=ticked is None or scope in ticked,
        )
        for scope in scopes
    ]


def filter_grantable(user: Any, application: Any, scopes: Sequence[str]) -> list[str]:
    """Return those of `scopes` that `user` may grant to `application`, in their order."""
    offered_scopes = get_offered_scopes(application, user=user)
    return [scope for scope in scopes if scope in offered_scopes]


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

"""Connected applications: the clients with access to a user's account."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from mcp_django.contrib.oauth import toolkit_compat
from mcp_django.contrib.oauth.clients.display import Client, client_of, targets_of
from mcp_django.contrib.oauth.clients.display_names import resource_name
from mcp_django.contrib.oauth.flows.scope_choices import Offer, offers
from mcp_django.contrib.oauth.models import Consent


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Client of a user, with all resources that it may access."""

    pk: str
    """Key in forms, valid among the user's own connected applications only."""
    application: Any
    client: Client
    resource_names: tuple[str, ...]
    offers: tuple[Offer, ...]
    """Scopes of the last consents and of valid older tokens."""
    targets: tuple[str, ...]
    """Hosts of the redirect URIs."""
    created: datetime
    last_used: datetime | None
    """Time of the last token, which is renewed once per access token lifetime during use."""


def connections_of(user: Any) -> list[Connection]:
    """Return the clients that may act for `user` now, the most recently used first."""
    standing: dict[Any, list[Consent]] = {}
    applications: dict[Any, Any] = {}
    related = ("application", "application__mcp_profile", "application__user")
    for consent in Consent.objects.standing().filter(user=user).select_related(*related):
        standing.setdefault(consent.application_id, []).append(consent)
        applications[consent.application_id] = consent.application

    tokens = _live_tokens(user)
    missing = [pk for pk in tokens if pk not in applications]
    if missing:
        found = toolkit_compat.applications().objects.filter(pk__in=missing).select_related("mcp_profile", "user")
        applications.update((application.pk, application) for application in found)

    made = [_connection(one, standing.get(pk, []), tokens.get(pk)) for pk, one in applications.items()]
    return sorted(made, key=lambda one: one.last_used or one.created, reverse=True)


@dataclass(slots=True)
class _Tokens:
    """Summary of the tokens that a client has for the user."""

    scopes: set[str]
    resources: set[str]
    first: datetime
    last: datetime


def _live_tokens(user: Any) -> dict[Any, _Tokens]:
    """Return summaries of the valid tokens by application key."""
    found: dict[Any, _Tokens] = {}
    access = toolkit_compat.access_tokens().objects.filter(user=user, application__isnull=False)
    refresh = toolkit_compat.refresh_tokens().objects.filter(user=user, revoked=None, access_token__isnull=False)
    live = [
        *access.filter(expires__gt=timezone.now()).values_list("application", "created", "scope", "resource"),
        *refresh.values_list("application", "created", "access_token__scope", "access_token__resource"),
    ]

    for application, created, scope, resource in live:
        kept = found.setdefault(application, _Tokens(set(), set(), created, created))
        kept.scopes.update((scope or "").split())
        kept.resources.update(resource or ())
        kept.first, kept.last = min(kept.first, created), max(kept.last, created)
    return found


def _connection(application: Any, standing: Iterable[Consent], tokens: _Tokens | None) -> Connection:
    scopes = {scope for consent in standing for scope in consent.scopes}
    resources = {consent.resource for consent in standing}
    begun = [consent.granted for consent in standing]
    if tokens is not None:
        scopes, resources = scopes | tokens.scopes, resources | tokens.resources
        begun.append(tokens.first)

    return Connection(
        pk=str(application.pk),
        application=application,
        client=client_of(application),
        resource_names=tuple(sorted({resource_name(resource) for resource in resources})),
        offers=tuple(offers(sorted(scopes))),
        targets=tuple(targets_of(application.redirect_uris.split())),
        created=min(begun),
        last_used=None if tokens is None else tokens.last,
    )

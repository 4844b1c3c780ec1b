"""Remembered consents of users.

A user is not asked again for the same client, resource and scopes, or a subset of them, while the client's name, host
and redirect URIs are unchanged. A client cannot choose to skip the page. Clients on the user's own machine always
require consent, because any program there can claim to be that client (RFC 8252, section 8.6).
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, router, transaction
from django.utils import timezone

from mcp_django.contrib.oauth import redirects
from mcp_django.contrib.oauth.models import Consent
from mcp_django.contrib.oauth.options import get_settings


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

    wanted, now, current_fingerprint = set(scopes), timezone.now(), compute_fingerprint(application)
    rows = Consent.objects.filter(user=user, application=application, resource__in=resources, revoked=None)
    covered = {
        row.resource
        for row in rows
        if row.redirects_hash == current_fingerprint
        and row.expires is not None
        and row.expires > now
        and wanted <= set(row.scopes)
    }

    return covered >= set(resources)


def record_consent(user: Any, application: Any, resources: Iterable[str], scopes: Iterable[str]) -> None:
    """Save a new consent of `user`, which replaces earlier ones."""
    days, now = get_settings().remember_consent, timezone.now()
    values = {
        "scopes": sorted(set(scopes)),
        "redirects_hash": compute_fingerprint(application),
        "granted": now,
        "expires": now + timedelta(days=days) if days else None,
        "revoked": None,
    }
    for resource in sorted(set(resources)):
        key = {"user": user, "application": application, "resource": resource}
        if Consent.objects.filter(**key).update(**values):
            continue
        try:
            with transaction.atomic(using=router.db_for_write(Consent)):
                Consent.objects.create(**key, **values)
        except IntegrityError:  # concurrent decisions: both are equally new
            Consent.objects.filter(**key).update(**values)

"""What users allowed clients, and when they need not be asked again.

Nobody is asked again for the same client at the same resource, for the same scopes or fewer of them, while the client
is what it was when it was allowed: its name, its host and its redirect URIs. A client never chooses to be silent, and
one on the user's own machine is asked about each time, because any program there can say that it is that client (RFC
8252, section 8.6).
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


def fingerprint(application: Any) -> str:
    """What a client is recognised by: 64 hexadecimal digits. A new name, host or redirect URI gives another."""
    uris = sorted(set(application.redirect_uris.split()))
    # The host of a document is in the client's id.
    seen = json.dumps([application.client_id, application.name, uris])
    return hashlib.sha256(seen.encode()).hexdigest()


def is_remembered(user: Any, application: Any, resources: Sequence[str], scopes: Iterable[str], redirect: str) -> bool:
    """Did `user` allow all of this before, so that nobody has to be asked?

    `resources` are canonical URLs, and `redirect` is the redirect URI of the request.
    """
    if not get_settings().remember_consent or not resources:
        return False
    if redirects.is_native(redirect) and not get_settings().remember_loopback:
        return False
    wanted, now, print_ = set(scopes), timezone.now(), fingerprint(application)
    rows = Consent.objects.standing().filter(user=user, application=application, resource__in=resources)
    good = {
        row.resource
        for row in rows
        if row.redirects_hash == print_ and row.expires is not None and row.expires > now and wanted <= set(row.scopes)
    }
    return good >= set(resources)


def give(user: Any, application: Any, resources: Iterable[str], scopes: Iterable[str]) -> None:
    """Keep what `user` has just allowed. It takes the place of what was allowed before."""
    days, now = get_settings().remember_consent, timezone.now()
    kept = {
        "scopes": sorted(set(scopes)),
        "redirects_hash": fingerprint(application),
        "granted": now,
        "expires": now + timedelta(days=days) if days else None,
        "revoked": None,
    }
    for resource in sorted(set(resources)):
        whose = {"user": user, "application": application, "resource": resource}
        if Consent.objects.filter(**whose).update(**kept):
            continue
        try:
            with transaction.atomic(using=router.db_for_write(Consent)):
                Consent.objects.create(**whose, **kept)
        except IntegrityError:  # said twice at once: the other one is as new
            Consent.objects.filter(**whose).update(**kept)

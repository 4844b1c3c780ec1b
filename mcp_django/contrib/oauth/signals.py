"""Invalidation of cached principals when tokens, clients or consents change.

The endpoints, the pages, the admin and `cleartokens` delete or save rows with the ORM, so receivers run. Changes by
`QuerySet.update` or SQL take effect after TOKEN_CACHE_SECONDS.
"""

from typing import Any

from django.db.models.signals import post_delete, post_save

from mcp_django.auth.authentication import principal_cache
from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.models import ClientProfile, Consent
from mcp_django.contrib.oauth.tokens.access_tokens import OAUTH_KIND
from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model, get_application_model

_UID_PREFIX = "mcp_django.contrib.oauth"


def connect() -> None:
    """Connect the receivers. Repeated calls have no effect."""
    for model, receiver in (
        (get_access_token_model(), _on_token),
        (get_application_model(), _on_client),
        (ClientProfile, _on_client),
        (Consent, _on_consent),
    ):
        for signal in (post_save, post_delete):
            signal.connect(receiver, sender=model, dispatch_uid=f"{_UID_PREFIX}.{receiver.__name__}")


def _on_token(*, instance: Any, using: str, created: bool = False, **_: Any) -> None:
    if not created:
        pk = instance.pk  # a deleted instance has no primary key after the commit
        principal_cache.invalidate(
            lambda principal: principal.kind == OAUTH_KIND and principal.token_id == pk,
            using=using,
            user_pk=instance.user_id,
        )


def _on_client(*, instance: Any, using: str, created: bool = False, **_: Any) -> None:
    """Invalidate the principals of an application that changed, or whose profile changed."""
    if not created:
        client_id = (instance.application if isinstance(instance, ClientProfile) else instance).client_id
        principal_cache.invalidate(
            lambda principal: principal.kind == OAUTH_KIND and principal.client_id == client_id, using=using
        )


def _on_consent(*, instance: Consent, origin: Any = None, created: bool | None = None, **_: Any) -> None:
    """Revoke the tokens of a withdrawn or deleted consent."""
    if created is None:
        # A consent deleted with its user or client needs nothing, because its tokens are deleted too.
        is_withdrawn = origin is instance or getattr(origin, "model", None) is Consent
    else:
        is_withdrawn = instance.revoked is not None
    if is_withdrawn:
        revocation.revoke_resource_access(instance.user_id, instance.application_id, instance.resource)

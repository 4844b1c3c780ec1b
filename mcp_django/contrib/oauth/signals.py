"""What changes in the rows of tokens, clients and consents, told to those who have verified a token before.

Every way to end a token deletes or saves its row by the ORM, so that receivers hear of it: the endpoints, the pages,
the admin and `cleartokens`. What is done by `QuerySet.update` or in SQL is known after TOKEN_CACHE_SECONDS.
"""

from typing import Any

from django.db.models.signals import post_delete, post_save

from mcp_django.auth.authentication import principal_cache
from mcp_django.auth.principal import Principal
from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.models import ClientProfile, Consent
from mcp_django.contrib.oauth.toolkit_compat import access_tokens, applications

KIND = "oauth"
_HERE = "mcp_django.contrib.oauth"


def connect() -> None:
    """Listen; once is enough."""
    for model, receiver in (
        (access_tokens(), _on_token),
        (applications(), _on_application),
        (ClientProfile, _on_profile),
        (Consent, _on_consent),
    ):
        for signal in (post_save, post_delete):
            signal.connect(receiver, sender=model, dispatch_uid=f"{_HERE}.{receiver.__name__}")


def _on_token(*, instance: Any, using: str, created: bool = False, **_: Any) -> None:
    if not created:
        pk = instance.pk  # a deleted instance loses it before the commit
        principal_cache.forget(
            lambda principal: principal.kind == KIND and principal.token_id == pk, using=using, owner=instance.user_id
        )


def _on_application(*, instance: Any, using: str, created: bool = False, **_: Any) -> None:
    if not created:
        _forget_client(instance.client_id, using)


def _on_profile(*, instance: ClientProfile, using: str, created: bool = False, **_: Any) -> None:
    if not created:
        _forget_client(instance.application.client_id, using)


def _forget_client(client_id: str, using: str) -> None:
    def concerned(principal: Principal) -> bool:
        return principal.kind == KIND and principal.client_id == client_id

    principal_cache.forget(concerned, using=using)


def _on_consent(*, instance: Consent, origin: Any = None, created: bool | None = None, **_: Any) -> None:
    """A consent that is taken back, in the admin too, takes the tokens along that stand on it."""
    if created is None:
        # One that goes with its user or client needs nothing: so do their tokens.
        taken_back = origin is instance or getattr(origin, "model", None) is Consent
    else:
        taken_back = instance.revoked is not None
    if taken_back:
        revocation.end_at(instance.user_id, instance.application_id, instance.resource)

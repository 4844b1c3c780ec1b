"""Clients of the tests, and the browser of somebody who is asked about them."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from mcp_django.oauth import toolkit
from mcp_django.oauth.models import ClientProfile
from mcp_django.oauth.tokens import access_token

WEB = "https://client.example/cb"
LOOPBACK = "http://localhost/callback"
DOCUMENT = "https://client.example/oauth/client.json"
Source = ClientProfile.Source


def make_client(*uris: str, name: str = "Claude", source: Source = Source.REGISTERED, **profile: Any) -> Any:
    """A public client with redirect URIs, by default one that registered itself."""
    application = toolkit.applications()
    known: dict[str, Any] = {"client_id": DOCUMENT} if source is Source.DOCUMENT else {}
    made = application.objects.create(
        name=name,
        redirect_uris=" ".join(uris or (WEB,)),
        client_type=application.CLIENT_PUBLIC,
        authorization_grant_type=application.GRANT_AUTHORIZATION_CODE,
        registration_source="manual" if source is Source.MANUAL else "dcr",
        **known,
    )
    ClientProfile.objects.create(application=made, source=source, **profile)
    return made


def give_token(user: Any, application: Any, scope: str, *, seconds: int = 600) -> Any:
    """An access token of the user's."""
    made = toolkit.access_tokens()(
        user=user,
        application=application,
        scope=scope,
        resource=["https://testserver/mcp"],
        expires=timezone.now() + timedelta(seconds=seconds),
    )
    toolkit.set_token(made, access_token(None))
    made.save()
    return made

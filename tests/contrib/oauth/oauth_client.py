"""Clients of the tests, their tokens, and their authorization requests."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from django.utils import timezone

from mcp_django.contrib.oauth import toolkit_compat
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.tokens.token_format import access_token

WEB = "https://client.example/cb"
LOOPBACK = "http://localhost/callback"
DOCUMENT = "https://client.example/oauth/client.json"
ISSUER = "https://testserver"
MCP = "https://testserver/mcp"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"  # RFC 7636, appendix B
SCOPES = {"airports:read": "Look up airports", "airports:write": "Change airports"}
Source = ClientProfile.Source


def make_client(*uris: str, name: str = "Claude", source: Source = Source.REGISTERED, **profile: Any) -> Any:
    """Make a public client with redirect URIs, by default one that registered itself."""
    application = toolkit_compat.get_application_model()
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
    """Make an access token of the user."""
    made = toolkit_compat.get_access_token_model()(
        user=user,
        application=application,
        scope=scope,
        resource=[MCP],
        expires=timezone.now() + timedelta(seconds=seconds),
    )
    toolkit_compat.set_token(made, access_token(None))
    made.save()
    return made


def authorization_path(application: Any, **changes: Any) -> str:
    """The path of a correct authorization request with `changes`: None leaves a parameter out, a list repeats it."""
    parameters: dict[str, str | Iterable[str] | None] = {
        "response_type": "code",
        "client_id": application.client_id,
        "redirect_uri": WEB,
        "scope": " ".join(SCOPES),
        "state": "st-1",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "resource": MCP,
        **changes,
    }
    return "/o/authorize/?" + urlencode({k: v for k, v in parameters.items() if v is not None}, doseq=True)


def read_redirect(response: Any, redirect: str = WEB) -> dict[str, str]:
    """Read the query of a redirect to the client. No parameter may come twice."""
    assert response.status_code == 302, response.content.decode()
    target = urlsplit(response["Location"])
    assert f"{target.scheme}://{target.netloc}{target.path}" == redirect.partition("?")[0]
    pairs = parse_qsl(target.query, keep_blank_values=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)

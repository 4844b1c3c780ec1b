"""`/o/introspect/`: what is a token good for (RFC 7662)? For resource servers that an operator has set up, which show
their client's secret.
"""

from typing import Any

from django.http import HttpRequest, HttpResponse

from mcp_django import conf
from mcp_django.auth.resource import canonical
from mcp_django.contrib.oauth.endpoints.client_auth import authenticated
from mcp_django.contrib.oauth.endpoints.endpoint import Refusal, endpoint, told
from mcp_django.contrib.oauth.flows.server import BEARER
from mcp_django.contrib.oauth.tokens import access_tokens, credentials
from mcp_django.contrib.oauth.tokens.scopes import still_offered


@endpoint()
def introspect(request: HttpRequest) -> HttpResponse:
    """By POST only: a token in a URL would be in logs."""
    asking = authenticated(request)
    if not may_ask(asking):
        raise Refusal("invalid_client", "Only resource servers that an operator has set up may ask", status=401)
    token = request.POST.get("token")
    if not token:
        raise Refusal("invalid_request", "Say which token")
    row = access_tokens.rows(token).first()
    audiences = (
        [] if row is None or not access_tokens.is_usable(row) else _known_to(asking, access_tokens.resources_of(row))
    )
    if row is None or not audiences:
        return told(active=False)
    return told(
        active=True,
        scope=" ".join(still_offered(row.scope, row.application, user=row.user)),
        client_id=row.application.client_id,
        username=row.user.get_username(),
        sub=str(row.user.pk),
        token_type=BEARER,
        exp=int(row.expires.timestamp()),
        iat=int(row.created.timestamp()),
        aud=audiences,
        iss=conf.issuer(),
    )


def may_ask(application: Any) -> bool:
    """Did an operator make this client, with a secret? One that a user made for himself, by a view of the toolkit that
    may be reachable, does not count.
    """
    profile = getattr(application, "mcp_profile", None)
    manual = application.registration_source == application.RegistrationSource.MANUAL
    if profile is not None and profile.source != profile.Source.MANUAL:
        return False
    by_operator = application.user is None or application.user.is_staff
    return manual and by_operator and credentials.is_confidential(application)


def _known_to(application: Any, resources: list[str]) -> list[str]:
    """Those of a token's resources that the resource server may know of: with `allowed_resources`, its own."""
    profile = getattr(application, "mcp_profile", None)
    if profile is None or profile.allowed_resources is None:
        return resources
    own = {canonical(one) for one in profile.allowed_resources}
    return [one for one in resources if one in own]

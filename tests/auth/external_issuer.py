"""Verifiers of one identity provider, and their refusals."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User

from mcp_django.auth.authentication.verifiers import INVALID_MESSAGE, AuthError
from mcp_django.auth.external.verifier import ExternalVerifier
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.models import ExternalIdentity
from tests.auth.identity_provider import AUDIENCE, Provider, read_issuers

RESOURCE = ProtectedResource(server="default", uri=AUDIENCE)


def verifier_of(provider: Provider, **options: Any) -> ExternalVerifier:
    """A verifier of one provider, by its keys unless the options differ."""
    found = {"INTROSPECTION_URL", "DISCOVERY", "JWKS_URI"} & options.keys()
    keys = {} if found else {"JWKS_URI": f"{provider.origin}/keys"}
    return ExternalVerifier(read_issuers({"ISSUER": provider.issuer, **keys, **options}))


def introspecting_verifier(provider: Provider, **options: Any) -> ExternalVerifier:
    """A verifier that asks the provider about each token."""
    credentials = {"CLIENT_ID": "shop", "CLIENT_SECRET": "s3cret"}
    return verifier_of(provider, INTROSPECTION_URL=f"{provider.origin}/introspect", **{**credentials, **options})


def verify(verifier: ExternalVerifier, token: str, resource: ProtectedResource = RESOURCE) -> DjangoPrincipal:
    """Verify a token."""
    return async_to_sync(verifier.verify)(token, resource=resource)


def refusal(verifier: ExternalVerifier, token: str, resource: ProtectedResource = RESOURCE) -> AuthError:
    """Verify a token that must be refused."""
    with pytest.raises(AuthError) as caught:
        verify(verifier, token, resource)
    return caught.value


def is_invalid(verifier: ExternalVerifier, token: str, resource: ProtectedResource = RESOURCE) -> bool:
    """Is it refused in the one way there is for all that is wrong with a token?"""
    problem = refusal(verifier, token, resource)
    return (problem.kind, problem.description, problem.status) == ("invalid_token", INVALID_MESSAGE, 401)


def linked(provider: Provider, subject: str = "ada", **facts: Any) -> User:
    """Create a user that is linked to a subject of the provider."""
    user = User.objects.create_user(facts.pop("username", subject), **facts)
    ExternalIdentity.objects.create(issuer=provider.issuer, subject=subject, user=user)
    return user

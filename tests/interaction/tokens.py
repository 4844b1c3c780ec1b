"""Tokens that the site issues: personal ones, and access tokens of clients."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.utils import timezone

from mcp_django import wiring
from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.tokens.token_format import access_token
from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model, get_application_model, set_token
from mcp_django.models import PersonalAccessToken

APP = "app"
"""The name of the client."""


def personal(user: Any, scopes: Sequence[str], server: str) -> str:
    """A token that the user made."""
    _, value = PersonalAccessToken.issue(user=user, name="a script", scopes=list(scopes), expires=None)
    return value


def of_a_client(user: Any, scopes: Sequence[str], server: str) -> str:
    """An access token that the user let the client have for the server of an alias.."""
    application = get_application_model().objects.filter(name=APP).first()
    if application is None:
        application, _ = clients.create_client(APP, redirect_uris=["https://app.example/callback"])
    value = access_token(None)
    row = get_access_token_model()(
        application=application,
        user=user,
        scope=" ".join(scopes),
        expires=timezone.now() + timedelta(hours=1),
        resource=[wiring.get_services().resource_registry.get(server).uri],
    )
    set_token(row, value)
    row.save()
    return value

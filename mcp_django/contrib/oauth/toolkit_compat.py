"""Access to models and private names of django-oauth-toolkit and oauthlib.

Only this module uses their private names, and a test checks each of them. It must not be imported before Django's apps
are loaded.
"""

from typing import Any, Final

from django.db import router
from django.db.models import QuerySet
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)
from oauth2_provider.models import set_token_value as set_token
from oauth2_provider.oauth2_backends import get_oauthlib_core
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauth2_provider.settings import oauth2_settings
from oauthlib.oauth2.rfc6749.grant_types.authorization_code import code_challenge_method_s256

from mcp_django import conf

__all__ = [
    "PRIVATE_NAMES",
    "BaseValidator",
    "get_access_token_model",
    "get_application_model",
    "get_grant_model",
    "get_oauthlib_core",
    "get_primary_queryset",
    "get_refresh_token_model",
    "oauth2_settings",
    "restrict_to_s256",
    "set_token",
]

PRIVATE_NAMES: Final = (
    "oauth2_provider.oauth2_validators.OAuth2Validator._load_application",
    "oauthlib.oauth2.rfc6749.grant_types.authorization_code.AuthorizationCodeGrant._code_challenge_methods",
)
"""Private names that are used or replaced here, without any promise of stability."""


class BaseValidator(OAuth2Validator):  # type: ignore[misc]
    """Validator of the toolkit with public names for its private hooks."""

    def _load_application(self, client_id: Any, request: Any) -> Any:
        return self.load_client(client_id, request)

    def load_client(self, client_id: Any, request: Any) -> Any:
        """Return the usable client and set `request.client`; None if it cannot be used."""
        return super()._load_application(client_id, request)


def restrict_to_s256(grant: Any) -> None:
    """Limit a grant of oauthlib to the code challenge S256 (RFC 7636, section 4.2)."""
    grant._code_challenge_methods = {"S256": code_challenge_method_s256}


def get_primary_queryset(model: Any) -> "QuerySet[Any]":
    """Return a query set on the database that the model is written to.

    A lagging replica would miss the newest rows.
    """
    queryset: QuerySet[Any] = model._default_manager.using(router.db_for_write(model))
    return queryset


@conf.on_change
def _reload_settings() -> None:
    """Reload the toolkit's cached settings when `MCP` changes, which sets its lifetimes."""
    oauth2_settings.reload()

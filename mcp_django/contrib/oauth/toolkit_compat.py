"""django-oauth-toolkit and oauthlib: the one place that touches names of theirs that are not public, each of them held
by a test, and where their models are looked up.

Nothing here may be imported before Django's apps are loaded.
"""

from typing import Any, Final

from django.core.signals import setting_changed
from django.db import router
from django.db.models import QuerySet
from django.dispatch import receiver
from oauth2_provider import models as _models
from oauth2_provider.oauth2_backends import get_oauthlib_core
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauth2_provider.settings import oauth2_settings
from oauthlib.oauth2.rfc6749.grant_types.authorization_code import code_challenge_method_s256

__all__ = [
    "PRIVATE",
    "BaseValidator",
    "access_tokens",
    "applications",
    "at_source",
    "get_oauthlib_core",
    "grants",
    "oauth2_settings",
    "only_s256",
    "refresh_tokens",
    "set_token",
]

PRIVATE: Final = (
    "oauth2_provider.oauth2_validators.OAuth2Validator._load_application",
    "oauthlib.oauth2.rfc6749.grant_types.authorization_code.AuthorizationCodeGrant._code_challenge_methods",
)
"""What is used or replaced here without being promised by anybody."""


class BaseValidator(OAuth2Validator):  # type: ignore[misc]
    """The toolkit's validator, with the hooks that have no public name given one."""

    def _load_application(self, client_id: Any, request: Any) -> Any:
        return self.load_client(client_id, request)

    def load_client(self, client_id: Any, request: Any) -> Any:
        """The client that may be used, kept as `request.client`; None when there is none."""
        return super()._load_application(client_id, request)


def only_s256(grant: Any) -> None:
    """Leave a grant of oauthlib no other code challenge than S256 (RFC 7636, section 4.2)."""
    grant._code_challenge_methods = {"S256": code_challenge_method_s256}


def applications() -> Any:
    """The model of clients."""
    return _models.get_application_model()


def grants() -> Any:
    """The model of authorization codes."""
    return _models.get_grant_model()


def access_tokens() -> Any:
    """The model of access tokens."""
    return _models.get_access_token_model()


def refresh_tokens() -> Any:
    """The model of refresh tokens."""
    return _models.get_refresh_token_model()


def at_source(model: Any) -> "QuerySet[Any]":
    """The rows of a model in the database that it is written to: a replica that lags would not know the newest."""
    found: QuerySet[Any] = model._default_manager.using(router.db_for_write(model))
    return found


def set_token(row: Any, token: str) -> None:
    """Have a row of a token hold `token`, as a hash alone where the settings say so."""
    _models.set_token_value(row, token)


@receiver(setting_changed)
def _forget(*, setting: str, **kwargs: Any) -> None:
    """The toolkit keeps what it has read; of that, lifetimes come from `MCP`."""
    if setting == "MCP":
        oauth2_settings.reload()

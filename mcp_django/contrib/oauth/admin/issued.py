"""Makes codes and tokens read-only in the toolkit's admin; they can be viewed and revoked.

A row holds the user, scope and expiry of a token. An administrator who could edit them could take over the rights of
any user.
"""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from oauth2_provider import admin as _registered  # noqa: F401  # for either order in INSTALLED_APPS

from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model, get_grant_model, get_refresh_token_model


class UnchangeableAdmin:
    """Mixin that forbids changes in a ModelAdmin of the toolkit."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def forbid_token_changes(site: admin.AdminSite) -> None:
    """Forbid changes of codes and tokens in the admin site, as far as it shows them."""
    for model in (get_access_token_model(), get_refresh_token_model(), get_grant_model()):
        if site.is_registered(model):
            admin_class = type(site.get_model_admin(model))
            if not issubclass(admin_class, UnchangeableAdmin):
                site.unregister(model)
                site.register(model, type(admin_class.__name__, (UnchangeableAdmin, admin_class), {}))

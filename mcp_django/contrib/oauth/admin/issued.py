"""Makes codes and tokens read-only in the toolkit's admin; they can be viewed and revoked.

A row holds the user, scope and expiry of a token. An administrator who could edit them could take over the rights of
any user.
"""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from oauth2_provider import admin as _registered  # noqa: F401  # for either order in INSTALLED_APPS

from mcp_django.contrib.oauth.toolkit_compat import access_tokens, grants, refresh_tokens


class Issued:
    """Mixin that forbids changes in a ModelAdmin of the toolkit."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def lock(site: admin.AdminSite) -> None:
    """Forbid changes of codes and tokens in the admin site, as far as it shows them."""
    for model in (access_tokens(), refresh_tokens(), grants()):
        if site.is_registered(model):
            shown = type(site.get_model_admin(model))
            if not issubclass(shown, Issued):
                site.unregister(model)
                site.register(model, type(shown.__name__, (Issued, shown), {}))

"""Codes and tokens in the toolkit's admin: to be looked at and revoked, not changed.

A row says whom a token stands for, what for and how long. Whoever could change that of a token of his own would have
the rights of whomever he names.
"""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from oauth2_provider import admin as _registered  # noqa: F401  # whichever app comes first in INSTALLED_APPS

from mcp_django.contrib.oauth.toolkit_compat import access_tokens, grants, refresh_tokens


class Issued:
    """What becomes of a ModelAdmin of the toolkit: it changes no row, by nobody."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def lock(site: admin.AdminSite) -> None:
    """Have codes and tokens changed by nobody, as far as the site shows them at all."""
    for model in (access_tokens(), refresh_tokens(), grants()):
        if site.is_registered(model):
            shown = type(site.get_model_admin(model))
            if not issubclass(shown, Issued):
                site.unregister(model)
                site.register(model, type(shown.__name__, (Issued, shown), {}))

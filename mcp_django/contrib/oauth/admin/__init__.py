"""Admin of the authorization server."""

from django.contrib import admin

from mcp_django.contrib.oauth.admin.client_profile import ClientProfileAdmin
from mcp_django.contrib.oauth.admin.consent import ConsentAdmin
from mcp_django.contrib.oauth.admin.issued import lock

__all__ = ["ClientProfileAdmin", "ConsentAdmin"]

lock(admin.site)

"""Admin of the authorization server."""

from django.contrib import admin

from mcp_django.contrib.oauth.admin.client_profile import ClientProfileAdmin
from mcp_django.contrib.oauth.admin.consent import ConsentAdmin
from mcp_django.contrib.oauth.admin.issued import forbid_token_changes

__all__ = ["ClientProfileAdmin", "ConsentAdmin"]

forbid_token_changes(admin.site)

"""The admin's pages of the app. Django imports this where the admin is installed; nothing else does."""

from mcp_django.admin.session import SessionAdmin
from mcp_django.admin.token import PersonalAccessTokenAdmin

__all__ = ["PersonalAccessTokenAdmin", "SessionAdmin"]

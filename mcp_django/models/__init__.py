"""The rows of the app. What a client can name belongs to an owner; what opens a door is stored as a hash."""

from mcp_django.models.session import EndReason, Session
from mcp_django.models.token import PersonalAccessToken

__all__ = ["EndReason", "PersonalAccessToken", "Session"]

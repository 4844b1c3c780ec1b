"""The rows of the app. What a client can name belongs to an owner; what opens a door is stored as a hash."""

from .session import EndReason, Session
from .session_count import SessionCount
from .token import PersonalAccessToken

__all__ = ["EndReason", "PersonalAccessToken", "Session", "SessionCount"]

"""The admin's pages of the app. Django imports this where the admin is installed; nothing else does."""

from .session import SessionAdmin
from .stored_prompt import StoredPromptAdmin
from .stored_resource import StoredResourceAdmin
from .token import PersonalAccessTokenAdmin

__all__ = ["PersonalAccessTokenAdmin", "SessionAdmin", "StoredPromptAdmin", "StoredResourceAdmin"]

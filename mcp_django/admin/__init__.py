"""The admin's pages of the app. Django imports this where the admin is installed; nothing else does."""

from importlib.util import find_spec

from .client_token import ClientTokenAdmin
from .external_identity import ExternalIdentityAdmin
from .rules import ScopeGrantAdmin, ToolPolicyAdmin
from .session import SessionAdmin
from .stored_prompt import StoredPromptAdmin
from .stored_resource import StoredResourceAdmin
from .token import PersonalAccessTokenAdmin

if find_spec("mcp") is not None:  # the extra `client`
    from .client_health import ClientHealthAdmin as ClientHealthAdmin

__all__ = [
    "ClientTokenAdmin",
    "ExternalIdentityAdmin",
    "PersonalAccessTokenAdmin",
    "ScopeGrantAdmin",
    "SessionAdmin",
    "StoredPromptAdmin",
    "StoredResourceAdmin",
    "ToolPolicyAdmin",
]

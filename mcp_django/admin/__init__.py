"""Admin pages of the app. Django imports this module where the admin is installed."""

from importlib.util import find_spec

from mcp_django.admin.access.page import AccessAdmin
from mcp_django.admin.accounts.service_account import ServiceAccountAdmin
from mcp_django.admin.client_token import ClientTokenAdmin
from mcp_django.admin.external_identity import ExternalIdentityAdmin
from mcp_django.admin.rules import ScopeGrantAdmin, ToolPolicyAdmin
from mcp_django.admin.session import SessionAdmin
from mcp_django.admin.stored_prompt import StoredPromptAdmin
from mcp_django.admin.stored_resource import StoredResourceAdmin
from mcp_django.admin.token import PersonalAccessTokenAdmin

if find_spec("mcp") is not None:  # the extra `client`
    from mcp_django.admin.client_health import ClientHealthAdmin as ClientHealthAdmin

__all__ = [
    "AccessAdmin",
    "ClientTokenAdmin",
    "ExternalIdentityAdmin",
    "PersonalAccessTokenAdmin",
    "ScopeGrantAdmin",
    "ServiceAccountAdmin",
    "SessionAdmin",
    "StoredPromptAdmin",
    "StoredResourceAdmin",
    "ToolPolicyAdmin",
]

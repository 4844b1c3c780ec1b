"""Models of the authorization server, in addition to the unchanged models of the toolkit."""

from mcp_django.contrib.oauth.models.client_profile import ClientProfile
from mcp_django.contrib.oauth.models.consent import Consent
from mcp_django.contrib.oauth.models.rotation import Rotation
from mcp_django.contrib.oauth.models.token_family import TokenFamily
from mcp_django.contrib.oauth.models.used_code import UsedCode

__all__ = ["ClientProfile", "Consent", "Rotation", "TokenFamily", "UsedCode"]

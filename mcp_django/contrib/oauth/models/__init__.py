"""What the authorization server keeps beside the tables of django-oauth-toolkit, whose models stay as they are."""

from mcp_django.contrib.oauth.models.client_profile import ClientProfile
from mcp_django.contrib.oauth.models.consent import Consent
from mcp_django.contrib.oauth.models.rotation import Rotation
from mcp_django.contrib.oauth.models.token_family import TokenFamily
from mcp_django.contrib.oauth.models.used_code import UsedCode

__all__ = ["ClientProfile", "Consent", "Rotation", "TokenFamily", "UsedCode"]

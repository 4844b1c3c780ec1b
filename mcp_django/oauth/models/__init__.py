"""What the authorization server keeps beside the tables of django-oauth-toolkit, whose models stay as they are."""

from .client_profile import ClientProfile
from .consent import Consent
from .rotation import Rotation
from .token_family import TokenFamily
from .used_code import UsedCode

__all__ = ["ClientProfile", "Consent", "Rotation", "TokenFamily", "UsedCode"]

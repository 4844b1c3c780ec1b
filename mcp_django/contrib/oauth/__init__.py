"""Embedded authorization server, built on django-oauth-toolkit.

It registers clients, obtains the consent of users, and issues tokens.

    INSTALLED_APPS = [..., "oauth2_provider", "mcp_django", "mcp_django.contrib.oauth"]
    OAUTH2_PROVIDER = oauth2_provider_settings(issuer="https://host.example")

    urlpatterns = [path("", include("mcp_django.contrib.oauth.urls")), ...]
"""

from mcp_django.contrib.oauth.provider_settings import oauth2_provider_settings

__all__ = ["oauth2_provider_settings"]

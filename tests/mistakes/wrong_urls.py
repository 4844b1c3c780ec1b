"""The URLs as they should not be, for tests whose project has no django-oauth-toolkit."""

from django.urls import include, path

from tests.mistakes.corrected_urls import BASE, MANAGEMENT

urlpatterns = [
    path("tools/mcp/", include("mcp_django.urls")),
    path("o/", include(([*BASE, *MANAGEMENT], "oauth2_provider"))),
]

"""Both includes are mistakes."""

from django.urls import include, path

urlpatterns = [
    path("mcp/", include("mcp_django.urls")),
    path("o/", include("oauth2_provider.urls")),
]

"""The Django view of the workers' site, at /view/mcp, and the pages of its authorization server."""

from django.urls import include, path

urlpatterns = [path("view/", include("mcp_django.urls")), path("", include("mcp_django.contrib.oauth.urls"))]
"""The ASGI door of the site is beside them, at /mcp."""

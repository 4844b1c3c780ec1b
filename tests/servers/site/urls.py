"""The Django view of the site, beside the ASGI door at /mcp: /view/mcp."""

from django.urls import include, path

urlpatterns = [path("view/", include("mcp_django.urls"))]

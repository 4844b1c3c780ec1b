"""The Django view of every server, beside the ASGI door: /view/mcp/interaction."""

from django.urls import include, path

urlpatterns = [path("view/", include("mcp_django.urls"))]

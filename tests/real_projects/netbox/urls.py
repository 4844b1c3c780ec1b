"""URLs of NetBox, after the endpoints."""

from django.urls import include, path

urlpatterns = [path("", include("mcp_django.urls")), path("", include("netbox.urls"))]

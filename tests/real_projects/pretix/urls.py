"""URLs of pretix, after the endpoint."""

from django.urls import include, path

urlpatterns = [path("", include("mcp_django.urls")), path("", include("pretix.multidomain.maindomain_urlconf"))]

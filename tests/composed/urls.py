"""The URLs of the composed project: its endpoints alone."""

from django.urls import include, path

urlpatterns = [path("", include("mcp_django.urls"))]

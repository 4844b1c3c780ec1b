"""URLs of the demo: the MCP endpoint at /mcp, the admin, and a home page that shows what is served."""

from django.contrib import admin
from django.urls import include, path

from project.airports.views import home

urlpatterns = [
    path("", home, name="home"),
    path("", include("mcp_django.urls")),
    path("admin/", admin.site.urls),
]

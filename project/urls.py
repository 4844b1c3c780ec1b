"""URLs of the demo: the MCP endpoint at /mcp, the preview of apps, the admin, and a home page."""

from django.conf import settings
from django.contrib import admin
from django.urls import include, path

from project.airports.views import Login, home

urlpatterns = [
    path("", home, name="home"),
    path("", include("mcp_django.urls")),
    path("mcp/apps/", include("mcp_django.contrib.apps.preview.urls")),
    path("admin/", admin.site.urls),
]
if settings.DEMO_AUTH == "oauth":
    # The authorization server's own pages, and one to log in at that looks like them.
    urlpatterns += [
        path("", include("mcp_django.contrib.oauth.urls")),
        path("accounts/login/", Login.as_view(), name="login"),
    ]

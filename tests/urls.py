"""URLs of the tests: the endpoint, the authorization server and the admin."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("mcp_django.urls")),
    path("", include("mcp_django.contrib.oauth.urls")),
    path("admin/", admin.site.urls),
]

"""URLs of the preview, and of the pages that it leads to."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("mcp_django.urls")),
    path("preview/", include("mcp_django.contrib.apps.preview.urls")),
    path("admin/", admin.site.urls),
]

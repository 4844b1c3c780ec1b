"""The Django view of the site, the admin, and its style sheets and scripts."""

from django.contrib import admin
from django.contrib.staticfiles.views import serve
from django.urls import include, path

urlpatterns = [
    path("view/", include("mcp_django.urls")),
    path("admin/", admin.site.urls),
    path("static/<path:path>", serve, {"insecure": True}),
]

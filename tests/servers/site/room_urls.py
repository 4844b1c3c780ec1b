"""The Django view of the site, and the admin."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("view/", include("mcp_django.urls")), path("admin/", admin.site.urls)]

"""URLs of the site."""

from django.contrib import admin
from django.urls import include, path
from wagtail import urls as wagtail_urls
from wagtail.admin import urls as wagtailadmin_urls

from tests.real_projects.wagtail.api import api_router

urlpatterns = [
    path("", include("mcp_django.urls")),
    path("django-admin/", admin.site.urls),
    path("admin/", include(wagtailadmin_urls)),
    path("api/v2/", api_router.urls),
    path("", include(wagtail_urls)),
]

"""A site with the pages of connected services, and a login page."""

from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.urls import include, path

urlpatterns = [
    path("mcp/clients/", include("mcp_django.contrib.client_pages.urls")),
    path("accounts/login/", LoginView.as_view(template_name="admin/login.html"), name="login"),
    path("admin/", admin.site.urls),
]

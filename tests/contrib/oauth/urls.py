"""A protected project: the endpoint, the authorization server at the root, the login page and the connections."""

from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.urls import include, path

urlpatterns = [
    path("", include("mcp_django.urls")),
    path("", include("mcp_django.contrib.oauth.urls")),
    path("mcp/clients/", include("mcp_django.contrib.client_pages.urls")),
    path("admin/", admin.site.urls),
    path("accounts/login/", LoginView.as_view(template_name="admin/login.html"), name="login"),
]

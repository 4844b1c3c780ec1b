"""The authorization server below a path, where no client looks for the metadata of an issuer without one."""

from django.contrib.auth.views import LoginView
from django.urls import include, path

urlpatterns = [
    path("", include("mcp_django.urls")),
    path("below/", include("mcp_django.contrib.oauth.urls")),
    path("accounts/login/", LoginView.as_view(template_name="admin/login.html"), name="login"),
]

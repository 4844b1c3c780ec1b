"""URLs of the protected site: endpoint, authorization server, and login page."""

from django.contrib.auth.views import LoginView
from django.urls import include, path

urlpatterns = [
    path("", include("mcp_django.urls")),
    path("", include("mcp_django.contrib.oauth.urls")),
    path("accounts/login/", LoginView.as_view(), name="login"),
]

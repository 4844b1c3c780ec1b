"""The URLs as they should be. The views of django-oauth-toolkit are played by another, because it is not installed in
every project; their names count.
"""

from django.urls import include, path
from django.views.generic import RedirectView

VIEW = RedirectView.as_view(url="/")
BASE = [path(f"{name}/", VIEW, name=name) for name in ("authorize", "token", "register")]
MANAGEMENT = [path("applications/", VIEW, name="list"), path("applications/register/", VIEW, name="register")]

urlpatterns = [
    path("", include("mcp_django.urls")),
    path("o/", include((BASE, "oauth2_provider"))),
]

"""The site with the admin and the control room, whose pages are those of a superuser, without a login."""

from collections.abc import Callable
from typing import Any

from tests.servers.site.settings import *  # noqa: F403
from tests.servers.site.settings import INSTALLED_APPS as SITE_INSTALLED_APPS

INSTALLED_APPS = [
    *SITE_INSTALLED_APPS,
    "django.contrib.admin",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "mcp_django.contrib.control_room",
    "mcp_django.contrib.playground",
    "tests.servers.site.room",
]
ROOT_URLCONF = "tests.servers.site.room_urls"
STATIC_URL = "/static/"
MIDDLEWARE = [
    "tests.browser.policy.StrictPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "tests.servers.site.room_settings.SuperuserMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
MCP: dict[str, Any] = {"AUTH": "none", "RECORD": {"FLUSH": 0.2}, "PLAYGROUND": {"ENABLED": True}}


class SuperuserMiddleware:
    """Makes each visitor the superuser. Processes report more often than usual, and are forgotten sooner."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        from mcp_django.contrib.control_room.recording import process_reports

        process_reports.HEARTBEAT_SECONDS = 0.2
        process_reports.SILENT_SECONDS = 3.0
        process_reports.FORGET_SECONDS = 20.0
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        """Return the response for the superuser."""
        from django.contrib.auth.models import User

        values = {"is_staff": True, "is_superuser": True}
        request.user = User.objects.get_or_create(username="boss", defaults=values)[0]
        return self.get_response(request)


MCP["ALERTS"] = {"MAIL": [], "INTERVAL": 0.2, "CLEAR_AFTER": 3, "LIMITS": {"silent_process": 3}}

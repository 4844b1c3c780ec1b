"""Django app of the MCP Apps."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AppsConfig(AppConfig):
    """App configuration: finds the template tags and static files, and registers the settings."""

    name = "mcp_django.contrib.apps"
    label = "mcp_apps"
    verbose_name = _("MCP apps")

    def ready(self) -> None:
        from mcp_django.contrib.apps.preview import options  # noqa: F401

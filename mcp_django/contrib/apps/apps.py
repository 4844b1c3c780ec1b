"""Django app of the MCP Apps."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AppsConfig(AppConfig):
    """App configuration.

    Finds the template tags and static files, registers the settings, and adds a link to the admin.
    """

    name = "mcp_django.contrib.apps"
    label = "mcp_apps"
    verbose_name = _("MCP apps")

    def ready(self) -> None:
        from mcp_django.contrib.apps.preview.options import find_preview_link
        from mcp_django.extensions.operators import add_overview_link

        add_overview_link(find_preview_link)

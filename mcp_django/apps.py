"""The Django app: one line in INSTALLED_APPS."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class MCPConfig(AppConfig):
    """Registers the system checks, listens for permissions that change, and imports what the project's apps serve."""

    name = "mcp_django"
    label = "mcp_django"
    verbose_name = _("MCP")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # The checks register themselves when they are imported, which needs the app registry, as the others do.
        from . import checks, conf, discovery  # noqa: F401
        from .notifications import rights

        rights.connect()
        discovery.autodiscover(conf.autodiscover_modules())

"""Django app of the skills."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SkillsConfig(AppConfig):
    """App configuration: connects the changes of stored skills."""

    name = "mcp_django.contrib.skills"
    label = "mcp_skills"
    verbose_name = _("MCP skills")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from mcp_django.contrib.skills import row_changes

        row_changes.connect()

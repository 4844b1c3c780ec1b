"""Django app of the skills."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SkillsConfig(AppConfig):
    """App configuration: registers the settings in `MCP["SKILLS"]`."""

    name = "mcp_django.contrib.skills"
    label = "mcp_skills"
    verbose_name = _("MCP skills")
    default_auto_field = "django.db.models.BigAutoField"

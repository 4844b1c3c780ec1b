"""Django app of the memory."""

from django.apps import AppConfig
from django.contrib.auth import get_user_model
from django.db.models.signals import pre_delete
from django.utils.translation import gettext_lazy as _


class MemoryConfig(AppConfig):
    """App configuration: registers the check, and erases data of deleted users.

    The tools are loaded from `mcp_tools`, like those of any app.
    """

    name = "mcp_django.contrib.memory"
    label = "mcp_memory"
    verbose_name = _("MCP memory")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from mcp_django.contrib.memory import checks  # noqa: F401
        from mcp_django.contrib.memory.privacy import erase_on_user_delete

        pre_delete.connect(erase_on_user_delete, sender=get_user_model(), dispatch_uid="mcp_django.contrib.memory")

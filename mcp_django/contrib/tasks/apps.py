"""Django app of the tasks."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TasksConfig(AppConfig):
    """App configuration: registers the settings in `MCP["TASKS"]`."""

    name = "mcp_django.contrib.tasks"
    label = "mcp_tasks"
    verbose_name = _("MCP tasks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from mcp_django.contrib.tasks import options  # noqa: F401
        from mcp_django.contrib.tasks.rows import metrics

        metrics.connect()

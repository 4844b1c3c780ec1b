"""Django app of the tasks."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TasksConfig(AppConfig):
    """App configuration, with the settings in `MCP["TASKS"]`.

    Each serving process maintains the tasks from its start on.
    """

    name = "mcp_django.contrib.tasks"
    label = "mcp_tasks"
    verbose_name = _("MCP tasks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from mcp_django import wiring
        from mcp_django.contrib.tasks import options, upkeep  # noqa: F401
        from mcp_django.contrib.tasks.rows import figures, metrics

        metrics.connect()
        figures.register_alert_rule()
        wiring.PROCESS.lifecycle.loop_callbacks.add(upkeep.start_maintenance)

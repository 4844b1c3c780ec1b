"""Django app of the control room."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ControlRoomConfig(AppConfig):
    """App configuration.

    Registers the settings in `MCP["RECORD"]` and `MCP["ALERTS"]`, the recorder of calls, and the check of alerts.
    """

    name = "mcp_django.contrib.control_room"
    label = "mcp_control_room"
    verbose_name = _("MCP control room")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from mcp_django.contrib.control_room.alerts import measurements
        from mcp_django.contrib.control_room.alerts.evaluation import AlertTimer
        from mcp_django.contrib.control_room.recording.recorder import RECORDER, install_recorder

        measurements.register()
        install_recorder()
        RECORDER.schedule.add_task(AlertTimer().check)

"""Django app of the playground."""

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class PlaygroundConfig(AppConfig):
    """App configuration.

    Registers the settings in `MCP["PLAYGROUND"]`, and the access of operators, which their tasks need. With the control
    room, its pages of calls link to the playground.
    """

    name = "mcp_django.contrib.playground"
    label = "mcp_playground"
    verbose_name = _("MCP playground")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from mcp_django.auth.authentication.stored_credentials import register_credential_source
        from mcp_django.contrib.playground.principals import PlaygroundAccess

        register_credential_source(PlaygroundAccess())
        if apps.is_installed("mcp_django.contrib.control_room"):
            from mcp_django.contrib.playground import recorded_calls

            recorded_calls.register()

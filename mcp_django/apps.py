"""Django app of the package: one line in INSTALLED_APPS."""

from typing import Any

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from mcp_django import signals


class MCPConfig(AppConfig):
    """App configuration: checks, signal receivers and autodiscovery."""

    name = "mcp_django"
    label = "mcp_django"
    verbose_name = _("MCP")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Importing these modules registers the checks, and requires the app registry.
        from django.contrib.auth.signals import user_logged_in

        from mcp_django import checks, conf
        from mcp_django.auth.authentication.session import refuse_login
        from mcp_django.notifications import access_signals, row_signals, stored_signals

        access_signals.connect()
        row_signals.connect()
        stored_signals.connect()
        user_logged_in.connect(refuse_login, dispatch_uid="mcp_django.apps")
        signals.session_closed.connect(_publish_session_end, dispatch_uid="mcp_django.apps")
        signals.clients_used.connect(_close_clients_on_shutdown, dispatch_uid="mcp_django.apps")
        # Errors of an existing module are raised: a silently missing tool is worse than a project that does not start.
        autodiscover_modules(*conf.autodiscover_modules())
        checks.declarations.log_unserved_declarations()


def _publish_session_end(*, session: Any, **kwargs: Any) -> None:
    """Publish the end of a session by a client, the quota, the admin or a command."""
    # Imported here, because a process that ends no session does not need these modules.
    from mcp_django.runtime.sessions.events import publish_session_end
    from mcp_django.wiring import get_services

    publish_session_end(get_services().event_publisher, session)


def _close_clients_on_shutdown(*, close: Any, **kwargs: Any) -> None:
    """Close the clients of the running loop when it shuts down."""
    from mcp_django.wiring import get_services

    get_services().lifecycle.add_cleanup(close)

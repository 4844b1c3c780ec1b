"""The Django app: one line in INSTALLED_APPS."""

from typing import Any

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from mcp_django import signals


class MCPConfig(AppConfig):
    """Registers the system checks, listens for permissions that change, and imports what the project's apps serve."""

    name = "mcp_django"
    label = "mcp_django"
    verbose_name = _("MCP")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # The checks register themselves when they are imported, which needs the app registry, as the others do.
        from mcp_django import checks, conf, discovery  # noqa: F401
        from mcp_django.notifications import (
            credential_signals,
            permission_signals,
            row_signals,
            rule_signals,
            stored_signals,
        )

        credential_signals.connect()
        permission_signals.connect()
        row_signals.connect()
        rule_signals.connect()
        stored_signals.connect()
        signals.session_closed.connect(_tell_other_processes, dispatch_uid="mcp_django.apps")
        signals.clients_used.connect(_close_clients_at_end, dispatch_uid="mcp_django.apps")
        discovery.autodiscover(conf.autodiscover_modules())


def _tell_other_processes(*, session: Any, **kwargs: Any) -> None:
    """A session ended, by whatever hand: a client, the quota, the admin, a command."""
    # Here, because a process that ends no session needs none of what serves them.
    from mcp_django.runtime.sessions.events import announce_end
    from mcp_django.wiring import feeds

    announce_end(feeds(), session)


def _close_clients_at_end(*, close: Any, **kwargs: Any) -> None:
    """The running loop uses other servers, which are to be left in order when it ends."""
    from mcp_django.wiring import lifecycle

    lifecycle().at_end(close)

"""Settings and model of the playground. The model has permissions and no table of its own."""

from dataclasses import dataclass

from django.conf import settings as django_settings
from django.contrib.admin.models import LogEntry
from django.utils.translation import gettext_lazy as _

from mcp_django import conf


class Playground(LogEntry):
    """Pages of the playground, which have no rows of their own.

    The acts of their users are entries of the admin's log.
    """

    class Meta:
        proxy = True
        default_permissions = ()
        permissions = [
            ("use_playground", _("Can use the playground")),
            ("use_playground_as", _("Can use the playground as other users")),
        ]
        verbose_name = _("playground")
        verbose_name_plural = _("playground")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundSettings:
    """`MCP["PLAYGROUND"]`: the playground in the admin."""

    enabled: bool | None = None
    """Serve the playground in the admin; None does so with DEBUG only."""


get_playground_settings = conf.register_settings("PLAYGROUND", PlaygroundSettings)


def is_playground_enabled() -> bool:
    """Return True if the playground exists: if the setting enables it, or by default with DEBUG."""
    enabled = get_playground_settings().enabled
    return django_settings.DEBUG if enabled is None else enabled

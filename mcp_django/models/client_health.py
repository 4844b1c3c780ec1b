"""Health of the servers that this project uses, as observed by each process."""

from datetime import timedelta
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import PrimaryManager

HEALTH_ROW_LIFETIME = timedelta(hours=1)
"""Age after which the rows of a process that stopped reporting are deleted."""


class ClientHealthQuerySet(models.QuerySet["ClientHealth"]):
    """Query set of health rows."""

    def report(self, process: str, alias: str, values: dict[str, Any]) -> None:
        """Save the health of a server as observed by `process`, and delete stale rows."""
        now = timezone.now()
        self.update_or_create(process=process, alias=alias, defaults={**values, "updated": now})
        self.filter(updated__lt=now - HEALTH_ROW_LIFETIME).delete()


class ClientHealth(models.Model):
    """Health of one used server as observed by one process. The row holds no secret."""

    process = models.CharField(_("process"), max_length=100)
    alias = models.CharField(_("alias"), max_length=32)
    connections = models.PositiveIntegerField(_("connections"), default=0)
    since = models.DateTimeField(_("connected since"), null=True)
    reached = models.DateTimeField(_("last reached"), null=True)
    calls = models.PositiveBigIntegerField(_("calls"), default=0)
    failures = models.PositiveBigIntegerField(_("failures"), default=0)
    latency = models.FloatField(_("latency"), null=True)
    """Seconds of a call, an average in which recent calls count most."""
    protocol_version = models.CharField(_("protocol version"), max_length=32, blank=True)
    server = models.CharField(_("server"), max_length=200, blank=True)
    tools = models.PositiveIntegerField(_("tools"), null=True)
    error = models.CharField(_("last error"), max_length=100, blank=True)
    error_text = models.CharField(_("error message"), max_length=300, blank=True)
    error_at = models.DateTimeField(_("last error at"), null=True)
    updated = models.DateTimeField(_("as of"), db_index=True)

    objects = PrimaryManager.from_queryset(ClientHealthQuerySet)()

    class Meta:
        verbose_name = _("remote server")
        verbose_name_plural = _("remote servers")
        default_permissions = ("view", "change")
        constraints = [models.UniqueConstraint(fields=["process", "alias"], name="mcp_client_health_once")]

    def __str__(self) -> str:
        return f"{self.alias} ({self.process})"

    @property
    def is_failing(self) -> bool:
        """Return True if the most recent event of the server is an error."""
        return self.error_at is not None and (self.reached is None or self.reached < self.error_at)

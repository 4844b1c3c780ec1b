"""How other servers did lately, as each process found it."""

from datetime import timedelta
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.models.managers import PrimaryManager

KEPT = timedelta(hours=1)
"""How long a process is remembered that says nothing more."""


class ClientHealthQuerySet(models.QuerySet["ClientHealth"]):
    """What processes said."""

    def tell(self, process: str, alias: str, found: dict[str, Any]) -> None:
        """Say how a server is doing, as `process` sees it, and forget what is out of date."""
        now = timezone.now()
        self.update_or_create(process=process, alias=alias, defaults={**found, "updated": now})
        self.filter(updated__lt=now - KEPT).delete()


class ClientHealth(models.Model):
    """One process's view of one server that the project uses. It holds no secret."""

    process = models.CharField(_("process"), max_length=100)
    alias = models.CharField(_("alias"), max_length=32)
    connections = models.PositiveIntegerField(_("connections"), default=0)
    since = models.DateTimeField(_("connected since"), null=True)
    reached = models.DateTimeField(_("last reached"), null=True)
    calls = models.PositiveBigIntegerField(_("calls"), default=0)
    failures = models.PositiveBigIntegerField(_("failures"), default=0)
    latency = models.FloatField(_("latency"), null=True, help_text=_("Seconds, the latest counting most."))
    protocol_version = models.CharField(_("protocol version"), max_length=32, blank=True)
    server = models.CharField(_("server"), max_length=200, blank=True)
    tools = models.PositiveIntegerField(_("tools"), null=True)
    error = models.CharField(_("last error"), max_length=100, blank=True)
    error_text = models.CharField(_("what it said"), max_length=300, blank=True)
    error_at = models.DateTimeField(_("last error at"), null=True)
    updated = models.DateTimeField(_("as of"), db_index=True)

    objects = PrimaryManager.from_queryset(ClientHealthQuerySet)()

    class Meta:
        verbose_name = _("server in use")
        verbose_name_plural = _("servers in use")
        default_permissions = ("view", "change")
        constraints = [models.UniqueConstraint(fields=["process", "alias"], name="mcp_client_health_once")]

    def __str__(self) -> str:
        return f"{self.alias} ({self.process})"

    @property
    def is_failing(self) -> bool:
        """Is the last that is known of it an error?"""
        return self.error_at is not None and (self.reached is None or self.reached < self.error_at)

"""Rows of exports."""

import secrets

from django.db import models

from mcp_django.extensions.rows import PrimaryManager, create_user_key


class ExportStatus(models.TextChoices):
    """Status of an export."""

    WAITING = "waiting"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Export(models.Model):
    """Call of a tool whose result is built later."""

    id = models.CharField(primary_key=True, max_length=64, default=secrets.token_urlsafe, editable=False)
    owner = models.CharField(max_length=64, db_index=True)
    """Digest of the caller."""
    user = create_user_key(null=True)
    server = models.CharField(max_length=64)
    tool = models.CharField(max_length=128)
    call = models.TextField()
    """The stored call, as JSON."""
    status = models.CharField(max_length=16, choices=ExportStatus.choices, default=ExportStatus.WAITING)
    progress = models.FloatField(null=True)
    result = models.TextField(blank=True)
    error = models.TextField(blank=True)
    created = models.DateTimeField(auto_now_add=True)

    objects = PrimaryManager["Export"]()

    def __str__(self) -> str:
        return f"{self.tool} {self.id}"

"""Versions of stored prompts and resources: one row per recorded change."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import PrimaryManager, create_user_key
from mcp_django.models.stored.prompt import StoredPrompt
from mcp_django.models.stored.resource import StoredResource


class StoredVersion(models.Model):
    """Version of a stored row with its author and time. It never changes."""

    number = models.PositiveIntegerField(_("version"))
    created = models.DateTimeField(_("saved"), auto_now_add=True)
    user = create_user_key(verbose_name=_("by"), null=True, on_delete=models.SET_NULL)
    username = models.CharField(_("username"), max_length=150, blank=True)
    """Username of the author, kept after the user is deleted."""
    note = models.CharField(_("note"), max_length=200, blank=True)
    changes = models.JSONField(_("changes"), default=list)
    """Names of the fields that differ from the previous version."""
    data = models.JSONField(_("content"))
    """Snapshot made by `Stored.snapshot`."""

    objects = PrimaryManager()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        label = _("Version")
        return f"{label} {self.number}"


class StoredPromptVersion(StoredVersion):
    """Version of a prompt."""

    stored = models.ForeignKey(StoredPrompt, on_delete=models.CASCADE, related_name="versions")

    class Meta:
        verbose_name = _("version of a prompt")
        verbose_name_plural = _("versions of prompts")
        default_permissions = ()
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["stored", "number"], name="mcp_prompt_version")]


class StoredResourceVersion(StoredVersion):
    """Version of a resource."""

    stored = models.ForeignKey(StoredResource, on_delete=models.CASCADE, related_name="versions")

    class Meta:
        verbose_name = _("version of a resource")
        verbose_name_plural = _("versions of resources")
        default_permissions = ()
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["stored", "number"], name="mcp_resource_version")]

"""Position of refresh tokens in their families."""

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from mcp_django.conf.project import oauth_model_name
from mcp_django.contrib.oauth.models.token_family import TokenFamily
from mcp_django.models.rows import PrimaryManager


class Rotation(models.Model):
    """Rotation state of one refresh token, deleted with it."""

    refresh_token: "models.OneToOneField[Any, Any]" = models.OneToOneField(
        oauth_model_name("RefreshToken"), primary_key=True, on_delete=models.CASCADE, related_name="+"
    )
    family = models.ForeignKey(TokenFamily, verbose_name=_("family"), on_delete=models.CASCADE, related_name="+")
    generation = models.PositiveIntegerField(_("generation"), default=0)
    superseded = models.DateTimeField(_("superseded"), null=True)
    siblings = models.PositiveSmallIntegerField(_("siblings of its successor"), default=0)

    objects = PrimaryManager["Rotation"]()

    class Meta:
        verbose_name = _("rotation")
        verbose_name_plural = _("rotations")
        default_permissions = ()
        indexes = [models.Index(fields=["family", "generation"], name="mcp_oauth_rotation_family")]

    def __str__(self) -> str:
        return f"{self.family_id}: {self.generation}"

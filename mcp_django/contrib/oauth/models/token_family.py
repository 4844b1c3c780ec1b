"""Families of tokens that originate from one authorization."""

import uuid
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.conf import user_model_name
from mcp_django.conf.project import oauth_model_name
from mcp_django.models.rows import PrimaryManager


class TokenFamily(models.Model):
    """Row for each `token_family` of the toolkit's refresh tokens.

    Each change of the family writes this row first. Therefore rotation and revocation run one after the other, and the
    second sees the result of the first.
    """

    id = models.UUIDField(_("family"), primary_key=True, default=uuid.uuid4)
    user: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        user_model_name(), verbose_name=_("user"), null=True, on_delete=models.CASCADE, related_name="+"
    )
    application: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        oauth_model_name("Application"), verbose_name=_("client"), on_delete=models.CASCADE, related_name="+"
    )
    created = models.DateTimeField(_("created"), default=timezone.now)
    rotated = models.DateTimeField(_("last rotated"), default=timezone.now, db_index=True)
    revoked = models.DateTimeField(_("revoked"), null=True)

    objects = PrimaryManager["TokenFamily"]()

    class Meta:
        verbose_name = _("token family")
        verbose_name_plural = _("token families")
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.id)

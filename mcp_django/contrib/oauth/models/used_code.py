"""Used authorization codes."""

from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.conf.project import oauth_model_name
from mcp_django.models.rows import PrimaryManager


class UsedCode(models.Model):
    """Hash of a used code and of the tokens it gave.

    If the code is used again, it was intercepted, and the tokens are revoked (OAuth 2.1, section 4.1.3).
    """

    code_hash = models.CharField(_("hash"), max_length=64, unique=True)
    application: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        oauth_model_name("Application"), verbose_name=_("client"), on_delete=models.CASCADE, related_name="+"
    )
    family = models.UUIDField(_("token family"), null=True)
    access_token_hash = models.CharField(_("hash of the access token"), max_length=64, blank=True, default="")
    used = models.DateTimeField(_("used"), default=timezone.now)
    expires = models.DateTimeField(_("expires"), db_index=True)

    objects = PrimaryManager["UsedCode"]()

    class Meta:
        verbose_name = _("used code")
        verbose_name_plural = _("used codes")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.code_hash[:8]}…"

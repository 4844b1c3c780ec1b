"""Authorization codes that were exchanged."""

from typing import Any, Self

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.conf.project import oauth_model_name
from mcp_django.models.managers import PrimaryManager


class UsedCodeQuerySet(models.QuerySet["UsedCode"]):
    """Sets of used codes."""

    def expired(self) -> Self:
        """Those nobody has to remember any more."""
        return self.filter(expires__lte=timezone.now())


class UsedCode(models.Model):
    """A code by its hash, and what it gave: when the code comes again, somebody else has had it (OAuth 2.1, section
    4.1.3), and that is revoked.
    """

    code_hash = models.CharField(_("hash"), max_length=64, unique=True)
    application: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        oauth_model_name("Application"), verbose_name=_("client"), on_delete=models.CASCADE, related_name="+"
    )
    family = models.UUIDField(_("token family"), null=True)
    access_token_hash = models.CharField(_("hash of the access token"), max_length=64, blank=True, default="")
    used = models.DateTimeField(_("used"), default=timezone.now)
    expires = models.DateTimeField(_("expires"), db_index=True)

    objects = PrimaryManager.from_queryset(UsedCodeQuerySet)()

    class Meta:
        verbose_name = _("used code")
        verbose_name_plural = _("used codes")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.code_hash[:8]}…"

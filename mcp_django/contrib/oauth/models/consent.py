"""Consents of users to clients."""

from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.conf import user_model_name
from mcp_django.conf.project import oauth_model_name
from mcp_django.models.rows import PrimaryManager

MAX_RESOURCE_LENGTH = 500
"""Maximum number of characters of a resource's URL."""


class Consent(models.Model):
    """Newest consent of a user to a client at one resource, possibly revoked.

    An expired consent stays valid for the tokens it gave, but the user must consent again for new ones.
    """

    user: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        user_model_name(), verbose_name=_("user"), on_delete=models.CASCADE, related_name="+"
    )
    application: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        oauth_model_name("Application"), verbose_name=_("client"), on_delete=models.CASCADE, related_name="+"
    )
    resource = models.CharField(_("server"), max_length=MAX_RESOURCE_LENGTH)
    scopes = models.JSONField(_("scopes"), default=list, blank=True)
    redirects_hash = models.CharField(_("hash of the redirect URIs"), max_length=64, editable=False)
    granted = models.DateTimeField(_("granted"), default=timezone.now)
    expires = models.DateTimeField(_("expires"), null=True, blank=True, help_text=_("From then on the user is asked."))
    revoked = models.DateTimeField(_("revoked"), null=True, blank=True)

    objects = PrimaryManager["Consent"]()

    class Meta:
        verbose_name = _("consent")
        verbose_name_plural = _("consents")
        ordering = ["-granted", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["user", "application", "resource"], name="mcp_oauth_consent_unique")
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.application}"

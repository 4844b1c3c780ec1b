"""Which resources a session of the handshake era is told about."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from .primary import PrimaryManager
from .session import Session


class ResourceSubscription(models.Model):
    """A session wants to know when a resource changes. It ends with the session."""

    session = models.ForeignKey(
        Session, verbose_name=_("session"), on_delete=models.CASCADE, related_name="subscriptions"
    )
    uri = models.TextField(_("URI"))
    # The URI is too long for an index.
    uri_hash = models.CharField(_("hash of the URI"), max_length=64, editable=False)
    since = models.PositiveBigIntegerField(_("from event"), default=0)

    objects: "PrimaryManager[ResourceSubscription]" = PrimaryManager()

    class Meta:
        verbose_name = _("resource subscription")
        verbose_name_plural = _("resource subscriptions")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["session", "uri_hash"], name="mcp_subscription_session_uri"),
        ]

    def __str__(self) -> str:
        return self.uri

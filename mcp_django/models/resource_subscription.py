"""Which resources a session of the handshake era is told about."""

import hashlib
from typing import Any

from django.db import models
from django.dispatch import receiver
from django.utils.translation import gettext_lazy as _

from mcp_django.models.managers import PrimaryManager
from mcp_django.models.session import Session
from mcp_django.signals import session_closed, unsubscribed


class ResourceSubscriptionQuerySet(models.QuerySet["ResourceSubscription"]):
    """What sessions subscribed to, and the ways in and out."""

    def add(self, session: int, uri: str, *, since: int, most: int) -> bool:
        """Write that a session subscribes to a resource; False when it had done so. Raises OverflowError when it has
        `most` others, and IntegrityError when there is no such session.
        """
        hashed = self.model.hash(uri)
        row, created = self.get_or_create(session_id=session, uri_hash=hashed, defaults={"uri": uri, "since": since})
        # Counted afterwards: of several who come at once none may take it for granted that there is room.
        if created and self.filter(session_id=session).count() > most:
            row.delete()
            raise OverflowError
        return created

    def drop(self, session: int, uri: str) -> bool:
        """Take it back; False when there is nothing to take back."""
        return bool(self.filter(session_id=session, uri_hash=self.model.hash(uri)).delete()[0])

    def of(self, session: int) -> dict[str, int]:
        """What a session subscribed to: URI to the number of the event after which it holds."""
        return dict(self.filter(session_id=session).values_list("uri", "since"))


class ResourceSubscription(models.Model):
    """A session wants to know when a resource changes. It ends with the session."""

    session = models.ForeignKey(
        Session, verbose_name=_("session"), on_delete=models.CASCADE, related_name="subscriptions"
    )
    uri = models.TextField(_("URI"))
    # The URI is too long for an index.
    uri_hash = models.CharField(_("hash of the URI"), max_length=64, editable=False)
    since = models.PositiveBigIntegerField(_("from event"), default=0)

    objects = PrimaryManager.from_queryset(ResourceSubscriptionQuerySet)()

    class Meta:
        verbose_name = _("resource subscription")
        verbose_name_plural = _("resource subscriptions")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["session", "uri_hash"], name="mcp_subscription_session_uri"),
        ]

    def __str__(self) -> str:
        return self.uri

    @classmethod
    def hash(cls, uri: str) -> str:
        """What stands for a URI in the index."""
        return hashlib.sha256(uri.encode("utf-8", "surrogatepass")).hexdigest()


@receiver(session_closed)
def _end_with_the_session(*, session: Session, **kwargs: Any) -> None:
    """A session that is over is told nothing more. Its row stays for a while to be looked at, these do not."""
    rows = ResourceSubscription.objects.filter(session=session.pk)
    uris = list(rows.values_list("uri", flat=True))
    if not uris:
        return
    rows.delete()
    told = {"server": session.server, "owner": session.owner, "session": session.pk}
    for uri in uris:
        unsubscribed.send_robust(sender=None, uri=uri, **told)

"""Resource subscriptions of sessions of the handshake era."""

from typing import Any

from django.db import models
from django.dispatch import receiver
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import PrimaryManager, hash_text
from mcp_django.models.session import Session
from mcp_django.signals import session_closed, unsubscribed


class ResourceSubscriptionQuerySet(models.QuerySet["ResourceSubscription"]):
    """Query set of subscriptions, with methods to add and remove them."""

    def add(self, session: int, uri: str, *, since: int, limit: int) -> bool:
        """Subscribe a session to a resource. Return False if it was subscribed already.

        Raises:
            OverflowError: the session has `limit` other subscriptions.
            IntegrityError: the session does not exist.
        """
        hashed = self.model.hash(uri)
        row, created = self.get_or_create(session_id=session, uri_hash=hashed, defaults={"uri": uri, "since": since})
        # Counted after the insert: concurrent inserts cannot all rely on the same free place.
        if created and self.filter(session_id=session).count() > limit:
            row.delete()
            raise OverflowError
        return created

    def remove(self, session: int, uri: str) -> bool:
        """Remove a subscription. Return False if there was none."""
        return bool(self.filter(session_id=session, uri_hash=self.model.hash(uri)).delete()[0])

    def get_start_events(self, session: int) -> dict[str, int]:
        """Return the subscribed URIs of a session with the event number each one starts after."""
        return dict(self.filter(session_id=session).values_list("uri", "since"))


class ResourceSubscription(models.Model):
    """Subscription of a session to changes of a resource. It ends with the session."""

    session = models.ForeignKey(
        Session, verbose_name=_("session"), on_delete=models.CASCADE, related_name="subscriptions"
    )
    uri = models.TextField(_("URI"))
    # A URI is too long for an index, so the index is on its hash.
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
        """Return the digest that represents a URI in the index."""
        return hash_text(uri)


@receiver(session_closed)
def _delete_with_session(*, session: Session, **kwargs: Any) -> None:
    """Delete the subscriptions of a closed session.

    The session's row is kept for a while, so that administrators can view it.
    """
    rows = ResourceSubscription.objects.filter(session=session.pk)
    uris = list(rows.values_list("uri", flat=True))
    if not uris:
        return
    rows.delete()
    signal_args = {"server": session.server, "owner": session.owner, "session": session.pk}
    for uri in uris:
        unsubscribed.send_robust(sender=None, uri=uri, **signal_args)

"""How many live sessions each server has at most: what keeps the limit of a server exact and cheap."""

from django.db import models, transaction
from django.db.models import F
from django.utils.translation import gettext_lazy as _

from mcp_django.models.managers import PrimaryManager


class SessionCountQuerySet(models.QuerySet["SessionCount"]):
    """The two ways to change a count."""

    def claim(self, server: str, most: int) -> bool:
        """Count one session more, unless that might be more than `most`. To be the first statement of the transaction
        that saves the session: until its end everybody else who opens one on this server waits.
        """
        return bool(self.filter(server=server, at_most__lt=most).update(at_most=F("at_most") + 1))

    def recount(self, server: str, live: "models.QuerySet[models.Model]") -> int:
        """Set the count to what there is: `live` are the server's live sessions. Returns how many they are.

        It starts with a write, so nobody is between claiming and saving while the sessions are being counted.
        """
        with transaction.atomic(using=self.db):
            self.bulk_create([SessionCount(server=server, at_most=0)], ignore_conflicts=True)
            self.filter(server=server).update(at_most=F("at_most"))
            counted = live.count()
            self.filter(server=server).update(at_most=counted)
        return counted


class SessionCount(models.Model):
    """An upper bound of the live sessions of one server.

    It grows with every session that is opened and never shrinks when one ends, by whatever way. When it reaches the
    limit the sessions are counted, and now and then besides; so nothing that happens to the rows makes it wrong for
    long.
    """

    server = models.CharField(_("server"), max_length=64, primary_key=True)
    at_most = models.PositiveIntegerField(_("sessions at most"))

    objects = PrimaryManager.from_queryset(SessionCountQuerySet)()

    class Meta:
        verbose_name = _("session count")
        verbose_name_plural = _("session counts")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.server}: {self.at_most}"

"""Upper bounds of the live sessions per server: they keep the session limit exact and cheap."""

from django.db import models, transaction
from django.db.models import F
from django.utils.translation import gettext_lazy as _

from mcp_django.models.managers import PrimaryManager


class SessionCountQuerySet(models.QuerySet["SessionCount"]):
    """Query set of session counts."""

    def reserve(self, server: str, limit: int) -> bool:
        """Increase the count by one unless it has reached `limit`; return True on success.

        This must be the first statement of the transaction that saves the session. Until the commit, other processes
        that open a session on this server wait.
        """
        return bool(self.filter(server=server, at_most__lt=limit).update(at_most=F("at_most") + 1))

    def recount(self, server: str, live: "models.QuerySet[models.Model]") -> int:
        """Set the count to the number of sessions in `live`, and return that number.

        The transaction starts with a write. Therefore no process is between reserving and saving during the count.
        """
        with transaction.atomic(using=self.db):
            self.bulk_create([SessionCount(server=server, at_most=0)], ignore_conflicts=True)
            self.filter(server=server).update(at_most=F("at_most"))
            counted = live.count()
            self.filter(server=server).update(at_most=counted)
        return counted


class SessionCount(models.Model):
    """Upper bound of the live sessions of one server.

    The bound grows with each opened session and does not shrink when a session ends. The sessions are counted when the
    bound reaches the limit, and from time to time. Therefore any change of the rows is corrected soon.
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

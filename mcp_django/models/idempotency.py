"""Actions that happen at most once: idempotency keys with their results, and used states."""

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import PrimaryManager
from mcp_django.models.session import OWNER_LENGTH


class OnceResult(models.Model):
    """Claim on an operation, saved before it runs, and later its result."""

    key_hash = models.CharField(_("key hash"), max_length=64, unique=True, editable=False)
    owner = models.CharField(_("owner"), max_length=OWNER_LENGTH)
    claimed_at = models.DateTimeField(_("claimed"), default=timezone.now)
    done_at = models.DateTimeField(_("done"), null=True, blank=True)
    result = models.JSONField(_("result"), null=True, blank=True)
    expires = models.DateTimeField(_("expires"), db_index=True)

    objects: "PrimaryManager[OnceResult]" = PrimaryManager()

    class Meta:
        verbose_name = _("result of once()")
        verbose_name_plural = _("results of once()")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"


class SpentState(models.Model):
    """Digest of a consumed state, kept until the state would have expired."""

    digest = models.CharField(_("digest"), max_length=64, unique=True, editable=False)
    expires = models.DateTimeField(_("expires"), db_index=True)

    objects: "PrimaryManager[SpentState]" = PrimaryManager()

    class Meta:
        verbose_name = _("used state")
        verbose_name_plural = _("used states")
        default_permissions = ()

    def __str__(self) -> str:
        return self.digest

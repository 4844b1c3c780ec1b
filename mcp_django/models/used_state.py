"""Single-use sealed states that were consumed."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from mcp_django.models.managers import PrimaryManager


class SpentState(models.Model):
    """Digest of a consumed state, kept until the state would have expired."""

    digest = models.CharField(_("digest"), max_length=64, unique=True, editable=False)
    expires = models.DateTimeField(_("expires"), db_index=True)

    objects: "PrimaryManager[SpentState]" = PrimaryManager()

    class Meta:
        verbose_name = _("spent state")
        verbose_name_plural = _("spent states")
        default_permissions = ()

    def __str__(self) -> str:
        return self.digest

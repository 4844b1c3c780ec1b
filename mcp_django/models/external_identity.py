"""Links between subjects of identity providers and local accounts."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import PrimaryManager, create_user_key


class ExternalIdentity(models.Model):
    """Link from an issuer's subject to the account it acts as.

    Tokens of a subject without a row are rejected.
    """

    class Origin(models.TextChoices):
        """Origin of the link."""

        PERSON = "person", _("a person")
        EMAIL = "email", _("the e-mail address")
        USERNAME = "username", _("the username")
        CREATE = "create", _("the account's creation")

    issuer = models.CharField(_("issuer"), max_length=255)
    subject = models.CharField(_("subject"), max_length=255)
    user = create_user_key()
    origin = models.CharField(
        _("linked by"), max_length=16, choices=Origin.choices, default=Origin.PERSON, editable=False
    )
    created = models.DateTimeField(_("created"), auto_now_add=True)

    objects: "models.Manager[ExternalIdentity]" = PrimaryManager()

    class Meta:
        verbose_name = _("external identity")
        verbose_name_plural = _("external identities")
        ordering = ["issuer", "subject"]
        constraints = [
            models.UniqueConstraint(
                fields=["issuer", "subject"],
                name="mcp_external_identity",
                violation_error_message=_("This subject of the issuer already has an account."),
            )
        ]

    def __str__(self) -> str:
        return f"{self.subject} ({self.issuer})"

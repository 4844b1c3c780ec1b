"""Profiles of clients, in addition to the toolkit's application model."""

from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.conf import user_model_name
from mcp_django.conf.project import oauth_model_name
from mcp_django.models.rows import PrimaryManager


class ApplicationType(models.TextChoices):
    """Application type sent by the client.

    Defined in OpenID Connect Dynamic Client Registration 1.0, section 2.
    """

    UNKNOWN = "", _("not said")
    WEB = "web", _("web")
    NATIVE = "native", _("native")


class ClientProfileQuerySet(models.QuerySet["ClientProfile"]):
    """Query set of profiles."""

    def self_registered(self) -> "ClientProfileQuerySet":
        """Return unapproved clients that were not created by an operator."""
        return self.filter(approved=False).exclude(source=ClientProfile.Source.MANUAL)


class ClientProfile(models.Model):
    """Profile of an application.

    An application without a profile was created by an operator with the toolkit: not blocked, not trusted, without
    limits.
    """

    class Source(models.TextChoices):
        """Origin of a client."""

        MANUAL = "manual", _("made by an operator")
        REGISTERED = "registered", _("registered itself")
        DOCUMENT = "document", _("described by its document")

    application: "models.OneToOneField[Any, Any]" = models.OneToOneField(
        oauth_model_name("Application"),
        verbose_name=_("application"),
        on_delete=models.CASCADE,
        related_name="mcp_profile",
    )
    source = models.CharField(_("source"), max_length=16, choices=Source.choices, default=Source.MANUAL)
    document_url = models.TextField(
        _("document"), blank=True, default="", help_text=_("Where the client is described.")
    )
    document_hash = models.CharField(_("hash of the document"), max_length=64, blank=True, default="", editable=False)
    document_fetched = models.DateTimeField(_("document fetched"), null=True, blank=True, editable=False)
    application_type = models.CharField(
        _("type"), max_length=16, choices=ApplicationType.choices, blank=True, default=ApplicationType.UNKNOWN
    )
    client_uri = models.TextField(_("home page"), blank=True, default="")
    policy_uri = models.TextField(_("privacy policy"), blank=True, default="")
    tos_uri = models.TextField(_("terms of service"), blank=True, default="")
    logo_uri = models.TextField(_("logo"), blank=True, default="")
    requested_grants = models.JSONField(_("requested grants"), default=list, blank=True)
    approved = models.BooleanField(
        _("approved"), default=False, help_text=_("An operator knows this client. It is never deleted as unused.")
    )
    blocked = models.BooleanField(
        _("blocked"), default=False, help_text=_("It gets no tokens, and those that it has are good for nothing.")
    )
    trusted = models.BooleanField(
        _("trusted"),
        default=False,
        help_text=_("With a service user it may have tokens in that user's name without anybody being asked."),
    )
    service_user: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        user_model_name(),
        verbose_name=_("service user"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    allowed_scopes = models.JSONField(
        _("allowed scopes"),
        null=True,
        blank=True,
        help_text=_("The only ones it may have. Empty: all that are declared."),
    )
    allowed_resources = models.JSONField(
        _("allowed servers"),
        null=True,
        blank=True,
        help_text=_("The only ones it gets tokens for, as URLs. Empty: all."),
    )
    created_ip = models.GenericIPAddressField(_("registered from"), null=True, blank=True, editable=False)
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    last_used = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)

    objects = PrimaryManager.from_queryset(ClientProfileQuerySet)()

    class Meta:
        verbose_name = _("client profile")
        verbose_name_plural = _("client profiles")
        ordering = ["-created", "-pk"]
        indexes = [models.Index(fields=["source", "approved", "created"], name="mcp_oauth_profile_source")]

    def __str__(self) -> str:
        return str(self.application)

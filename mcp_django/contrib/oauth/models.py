"""Models of the authorization server, in addition to the unchanged models of the toolkit."""

import uuid
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.conf.project import oauth_model_name
from mcp_django.extensions.rows import PrimaryManager, create_user_key
from mcp_django.types import clean_line

MAX_REDIRECT_LENGTH = 1024
"""Maximum number of characters of a redirect URI."""
MAX_RESOURCE_LENGTH = 500
"""Maximum number of characters of a resource's URL."""


def _create_application_key() -> "models.ForeignKey[Any, Any]":
    """Return a foreign key to the application model, with which rows are deleted."""
    return models.ForeignKey(
        oauth_model_name("Application"), verbose_name=_("client"), on_delete=models.CASCADE, related_name="+"
    )


class ApplicationType(models.TextChoices):
    """Application type sent by the client.

    Defined in OpenID Connect Dynamic Client Registration 1.0, section 2.
    """

    UNKNOWN = "", _("unspecified")
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

        MANUAL = "manual", _("created by an operator")
        REGISTERED = "registered", _("registered itself")
        DOCUMENT = "document", _("described by its document")

    application: "models.OneToOneField[Any, Any]" = models.OneToOneField(
        oauth_model_name("Application"),
        verbose_name=_("application"),
        on_delete=models.CASCADE,
        related_name="mcp_profile",
    )
    source = models.CharField(_("source"), max_length=16, choices=Source.choices, default=Source.MANUAL)
    document_url = models.TextField(_("document"), blank=True, default="")
    """URL of the metadata document of the client, or "" without one."""
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
    approved = models.BooleanField(_("approved"), default=False)
    blocked = models.BooleanField(_("blocked"), default=False)
    trusted = models.BooleanField(
        _("trusted"),
        default=False,
    )
    service_user = create_user_key(verbose_name=_("service user"), null=True, blank=True, on_delete=models.SET_NULL)
    allowed_scopes = models.JSONField(
        _("allowed scopes"),
        null=True,
        blank=True,
    )
    allowed_resources = models.JSONField(
        _("allowed servers"),
        null=True,
        blank=True,
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
        return clean_line(str(self.application))


class Consent(models.Model):
    """Newest consent of a user to a client at one resource and redirect URI, possibly revoked.

    An expired consent stays valid for the tokens it gave, but the user must consent again for new ones.
    """

    user = create_user_key()
    application = _create_application_key()
    resource = models.CharField(_("server"), max_length=MAX_RESOURCE_LENGTH)
    scopes = models.JSONField(_("scopes"), default=list, blank=True)
    redirects_hash = models.CharField(_("hash of the redirect URIs"), max_length=64, editable=False)
    redirect_uri = models.CharField(
        _("redirect URI"), max_length=MAX_REDIRECT_LENGTH, blank=True, default="", editable=False
    )
    """The redirect URI that the user saw, without the port of a loopback URI; "" if it is unknown."""
    redirect_digest = models.CharField(max_length=64, blank=True, default="", editable=False)
    """SHA-256 of `redirect_uri` in hexadecimal, short enough for an index; "" if the URI is unknown."""
    granted = models.DateTimeField(_("granted"), default=timezone.now)
    expires = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked = models.DateTimeField(_("revoked"), null=True, blank=True)

    objects = PrimaryManager["Consent"]()

    class Meta:
        verbose_name = _("consent")
        verbose_name_plural = _("consents")
        ordering = ["-granted", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "application", "resource", "redirect_digest"], name="mcp_oauth_consent_unique"
            )
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.application}"


class TokenFamily(models.Model):
    """Row for each `token_family` of the toolkit's refresh tokens.

    Each change of the family writes this row first. Therefore rotation and revocation run one after the other, and the
    second sees the result of the first.
    """

    id = models.UUIDField(_("family"), primary_key=True, default=uuid.uuid4)
    user = create_user_key(null=True)
    application = _create_application_key()
    created = models.DateTimeField(_("created"), default=timezone.now)
    rotated = models.DateTimeField(_("last rotated"), default=timezone.now, db_index=True)
    revoked = models.DateTimeField(_("revoked"), null=True)

    objects = PrimaryManager["TokenFamily"]()

    class Meta:
        verbose_name = _("token family")
        verbose_name_plural = _("token families")
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.id)


class Rotation(models.Model):
    """Rotation state of one refresh token, deleted with it."""

    refresh_token: "models.OneToOneField[Any, Any]" = models.OneToOneField(
        oauth_model_name("RefreshToken"), primary_key=True, on_delete=models.CASCADE, related_name="+"
    )
    family = models.ForeignKey(TokenFamily, verbose_name=_("family"), on_delete=models.CASCADE, related_name="+")
    generation = models.PositiveIntegerField(_("generation"), default=0)
    superseded = models.DateTimeField(_("superseded"), null=True)
    siblings = models.PositiveSmallIntegerField(_("siblings of its successor"), default=0)

    objects = PrimaryManager["Rotation"]()

    class Meta:
        verbose_name = _("rotation")
        verbose_name_plural = _("rotations")
        default_permissions = ()
        indexes = [models.Index(fields=["family", "generation"], name="mcp_oauth_rotation_family")]

    def __str__(self) -> str:
        return f"{self.family_id}: {self.generation}"


class UsedCode(models.Model):
    """Hash of a used code and of the tokens it gave.

    If the code is used again, it was intercepted, and the tokens are revoked (OAuth 2.1, section 4.1.3).
    """

    code_hash = models.CharField(_("hash"), max_length=64, unique=True)
    application = _create_application_key()
    family = models.UUIDField(_("token family"), null=True)
    access_token_hash = models.CharField(_("hash of the access token"), max_length=64, blank=True, default="")
    used = models.DateTimeField(_("used"), default=timezone.now)
    expires = models.DateTimeField(_("expires"), db_index=True)

    objects = PrimaryManager["UsedCode"]()

    class Meta:
        verbose_name = _("used code")
        verbose_name_plural = _("used codes")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.code_hash[:8]}…"

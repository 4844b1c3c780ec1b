"""What other servers gave this project, or a user of it, to be used with: tokens, and the registration as a client.

The secrets are sealed (`client.sealing`) for the alias, the server's URL, the owner and the issuer, so that they open
in this row only. Nothing of them is shown anywhere.
"""

from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.conf import user_model_name
from mcp_django.models.managers import PrimaryManager


class ClientToken(models.Model):
    """The tokens of one owner for one server of `MCP["CLIENTS"]`. A server that moves to another URL gets new ones."""

    key = models.CharField(_("key"), max_length=64, unique=True, editable=False)
    """Digest of alias, URL and owner."""
    alias = models.CharField(_("server"), max_length=64)
    server = models.CharField(_("URL"), max_length=2000)
    """Where the server is, without the query, which may be a secret."""
    user: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        user_model_name(),
        verbose_name=_("user"),
        on_delete=models.CASCADE,
        related_name="+",
        null=True,
        blank=True,
        help_text=_("Nobody: the project itself."),
    )
    issuer = models.CharField(_("authorization server"), max_length=2000, blank=True, default="")
    grant = models.TextField(_("sealed tokens"), blank=True, default="", editable=False)
    registration = models.TextField(_("sealed registration"), blank=True, default="", editable=False)
    scopes = models.TextField(_("scopes"), blank=True, default="")
    wanted = models.TextField(_("scopes asked for"), blank=True, default="", editable=False)
    """Scopes that calls lacked: asked for when the owner connects again."""
    generation = models.PositiveBigIntegerField(_("generation"), default=0, editable=False)
    """Changes with the tokens, so that of several processes one knows of the other's."""
    renewing_until = models.DateTimeField(_("being renewed until"), null=True, blank=True, editable=False)
    """Until then one process is getting new tokens, and all others wait for them."""
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    updated = models.DateTimeField(_("renewed"), default=timezone.now, editable=False)

    objects: "models.Manager[ClientToken]" = PrimaryManager()

    class Meta:
        verbose_name = _("token for a server")
        verbose_name_plural = _("tokens for servers")
        ordering = ["alias", "pk"]
        indexes = [models.Index(fields=["alias", "user"], name="mcp_client_token_owner")]

    def __str__(self) -> str:
        return self.alias

    @property
    def is_connected(self) -> bool:
        """Are there tokens? Whether the server still takes them is another question."""
        return bool(self.grant)


class ClientFlow(models.Model):
    """A user on the way to another server's authorization and back: the row lets any worker finish what one began."""

    state_hash = models.CharField(_("state"), max_length=64, unique=True, editable=False)
    alias = models.CharField(_("server"), max_length=64)
    user: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        user_model_name(), verbose_name=_("user"), on_delete=models.CASCADE, related_name="+"
    )
    browser_hash = models.CharField(_("browser"), max_length=64, editable=False)
    """Digest of what the session of the browser holds: another one cannot finish it."""
    sealed = models.TextField(_("sealed request"), editable=False)
    """The PKCE verifier, and whom it was made for."""
    expires_at = models.DateTimeField(_("expires"), db_index=True)

    objects: "models.Manager[ClientFlow]" = PrimaryManager()

    class Meta:
        verbose_name = _("authorization in progress")
        verbose_name_plural = _("authorizations in progress")
        default_permissions = ()

    def __str__(self) -> str:
        return self.alias

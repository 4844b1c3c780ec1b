"""Tokens and client registrations that other servers issued to this project or a user.

The secrets are sealed (`mcp_django.client.oauth.crypto`) for the alias, the server's URL, the owner and the issuer.
They can therefore be opened in this row only. No page shows them.
"""

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import PrimaryManager, create_user_key


class ClientToken(models.Model):
    """Tokens of one owner for one server of `MCP["CLIENTS"]`.

    A server that moves to another URL gets a new row.
    """

    key = models.CharField(_("key"), max_length=64, unique=True, editable=False)
    """Digest of alias, URL and owner."""
    alias = models.CharField(_("server"), max_length=64)
    server = models.CharField(_("URL"), max_length=2000)
    """URL of the server without its query, which may be a secret."""
    user = create_user_key(null=True, blank=True)
    """User whose tokens these are, or None for tokens of the project itself."""
    issuer = models.CharField(_("authorization server"), max_length=2000, blank=True, default="")
    grant = models.TextField(_("sealed tokens"), blank=True, default="", editable=False)
    registration = models.TextField(_("sealed registration"), blank=True, default="", editable=False)
    scopes = models.TextField(_("scopes"), blank=True, default="")
    wanted = models.TextField(_("scopes asked for"), blank=True, default="", editable=False)
    """Scopes that calls lacked; requested when the owner connects again."""
    generation = models.PositiveBigIntegerField(_("generation"), default=0, editable=False)
    """Counter that changes with the tokens, so that processes detect each other's renewals."""
    renewing_until = models.DateTimeField(_("locked for renewal until"), null=True, blank=True, editable=False)
    """Time until which one process renews the tokens and all other processes wait."""
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    updated = models.DateTimeField(_("renewed"), default=timezone.now, editable=False)

    objects: "models.Manager[ClientToken]" = PrimaryManager()

    class Meta:
        verbose_name = _("connection to a remote server")
        verbose_name_plural = _("connections to remote servers")
        ordering = ["alias", "pk"]
        indexes = [models.Index(fields=["alias", "user"], name="mcp_client_token_owner")]

    def __str__(self) -> str:
        return self.alias

    @property
    def is_connected(self) -> bool:
        """Return True if tokens are stored. The server may have revoked them since."""
        return bool(self.grant)


class ClientFlow(models.Model):
    """Authorization of a user in progress at another server.

    The row lets any worker finish a flow that another worker began.
    """

    state_hash = models.CharField(_("state"), max_length=64, unique=True, editable=False)
    alias = models.CharField(_("server"), max_length=64)
    user = create_user_key()
    browser_hash = models.CharField(_("browser"), max_length=64, editable=False)
    """Digest of a value in the browser's session. Another browser cannot finish the flow."""
    sealed = models.TextField(_("sealed request"), editable=False)
    """The sealed PKCE verifier and the user it was created for."""
    expires_at = models.DateTimeField(_("expires"), db_index=True)

    objects: "models.Manager[ClientFlow]" = PrimaryManager()

    class Meta:
        verbose_name = _("authorization in progress")
        verbose_name_plural = _("authorizations in progress")
        default_permissions = ()

    def __str__(self) -> str:
        return self.alias

"""Admin of the tokens that other servers issued to this project. No secret is shown."""

from importlib.util import find_spec
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.module_loading import import_string
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django.admin.base import BaseAdmin
from mcp_django.conf import get_settings
from mcp_django.models import ClientToken

HAS_CLIENT = find_spec("mcp") is not None
"""True with the extra `client`."""


@admin.register(ClientToken)
class ClientTokenAdmin(BaseAdmin):
    """List and end connections to other servers. Only users create them.

    Deletion removes the tokens, on all workers within TOKEN_CACHE_SECONDS. It also revokes them at the authorization
    server, if that supports revocation.
    """

    list_display = ["alias", "owner", "server", "issuer", "scopes", "state", "expires_at", "updated"]
    list_filter = ["alias"]
    list_select_related = ["user"]
    search_fields = ["alias", "server", "user"]
    can_add = False
    can_change = False
    readonly_fields = ["owner", "state"]
    fields = ["alias", "owner", "server", "issuer", "scopes", "state", "created", "updated", "expires_at"]

    def delete_model(self, request: HttpRequest, obj: ClientToken) -> None:
        self._disconnect(request, [obj])

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ClientToken]) -> None:
        self._disconnect(request, list(queryset))

    def _disconnect(self, request: HttpRequest, tokens: list[ClientToken]) -> None:
        not_revoked = 0
        for token in tokens:
            settings = get_settings().clients.get(token.alias)
            if settings is None or not HAS_CLIENT or settings.display_location != token.server:
                token.delete()
                not_revoked += token.is_connected
            else:
                # The import of the SDK takes a quarter of the start of a process, and few processes serve this page.
                disconnect = import_string("mcp_django.client.oauth.flow.disconnect")
                not_revoked += not async_to_sync(disconnect)(settings, token.user)
        if not_revoked:
            text = ngettext(
                "%d connection could not be revoked at the server. Its tokens stay valid until they expire.",
                "%d connections could not be revoked at the server. Their tokens stay valid until they expire.",
                not_revoked,
            )
            self.message_user(request, text % not_revoked, messages.WARNING)

    @admin.display(description=_("owner"), ordering="user")
    def owner(self, token: ClientToken) -> Any:
        """Return the user that owns the tokens, or the project."""
        return token.user or _("the project")

    @admin.display(description=_("state"))
    def state(self, token: ClientToken) -> Any:
        """Return the state: connected, to be reconnected, or only registered."""
        if token.is_connected:
            return _("lacks scopes") if set(token.wanted.split()) - set(token.scopes.split()) else _("connected")
        return _("must be connected again") if token.issuer else _("not connected")

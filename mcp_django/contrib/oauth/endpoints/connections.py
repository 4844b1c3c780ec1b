"""`/o/connections/`: users see which clients may act for them, and take that away."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from mcp_django.contrib.oauth.endpoints.account import AccountPage
from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.flows.connected_apps import connections_of


class Connections(AccountPage):
    """GET lists the clients; POST with `client`, the key of one, ends it. Another user's clients have no key here."""

    name = "connections"
    template = "connections.html"

    def post(self, request: HttpRequest) -> HttpResponse:
        """End one."""
        wanted = request.POST.get("client", "")
        found = next((one for one in connections_of(request.user) if one.pk == wanted), None)
        if found is None:
            return self.show(done=_("This application has no access."))
        revocation.withdraw(request.user, found.application)
        return self.show(done=_("%(name)s has no access any more.") % {"name": found.client.name})

    def show(self, **context: Any) -> HttpResponse:
        """The page as it is now."""
        return super().show(connections=connections_of(self.request.user), **context)

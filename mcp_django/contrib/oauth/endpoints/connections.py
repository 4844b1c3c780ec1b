"""Page `/o/connections/`: users view their connected applications and withdraw access."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from mcp_django.contrib.oauth.endpoints.account import AccountPage
from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.flows.connected_apps import get_connected_apps


class Connections(AccountPage):
    """GET lists the applications; POST with `client`, the key of one, ends its access.

    The keys are valid for the current user's applications only.
    """

    name = "connections"
    template = "connections.html"

    def post(self, request: HttpRequest) -> HttpResponse:
        """Withdraw the access of one application."""
        key = request.POST.get("client", "")
        connected_app = next((one for one in get_connected_apps(request.user) if one.pk == key), None)
        if connected_app is None:
            return self.show(done=_("This application has no access."))
        revocation.withdraw_access(request.user, connected_app.application)
        return self.show(done=_("Access of %(name)s was withdrawn.") % {"name": connected_app.client.name})

    def show(self, **context: Any) -> HttpResponse:
        """Render the page with the current applications."""
        return super().show(connections=get_connected_apps(self.request.user), **context)

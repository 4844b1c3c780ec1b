"""Views: connected services, start of an authorization, and redirect URI."""

import secrets
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode, urlsplit

from asgiref.sync import async_to_sync
from django.contrib.auth.decorators import login_not_required
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views import View
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_variables

from mcp_django.client.oauth.flow import Denied, begin, complete, disconnect, owner_of
from mcp_django.client.oauth.http import AuthorizationFailed
from mcp_django.conf.clients import ClientSettings
from mcp_django.contrib.client_pages.addresses import address, outside, way_back
from mcp_django.contrib.client_pages.services import connectable, may_use, services_of
from mcp_django.html_pages import guarded, login_url, shown
from mcp_django.models import ClientToken

BROWSER = "mcp_client_browser"
"""Session key of the browser's secret."""


@method_decorator([transaction.non_atomic_requests, login_not_required, csrf_protect], name="dispatch")
class Page(View):
    """Base class of pages for authenticated users.

    Other users are redirected to the login.
    """

    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return guarded(HttpResponseRedirect(login_url(request, self.after_login(request))))
        return super().dispatch(request, *args, **kwargs)

    def after_login(self, request: HttpRequest) -> str:
        """Return the URL to open after the login."""
        return request.get_full_path()

    @property
    def user(self) -> Any:
        """The authenticated user."""
        return self.request.user

    def client(self, alias: str) -> ClientSettings:
        """Return the settings of a server. Raises Http404 if the user may not connect it."""
        settings = connectable(alias)
        if settings is None or not may_use(self.user, settings):
            raise Http404
        return settings

    def show(self, template: str, *, status: int = 200, leads_to: Iterable[str] = (), **context: Any) -> HttpResponse:
        """Render a page.

        `leads_to` are Content-Security-Policy sources that its forms may redirect to.
        """
        known = {"user_name": str(self.user.get_username()), "services_url": address("services")}
        return shown(self.request, f"mcp_clients/{template}", {**known, **context}, status=status, leads_to=leads_to)

    def trouble(self, reason: str, status: int, alias: str) -> HttpResponse:
        """Render the page for an error."""
        return self.show("problem.html", status=status, reason=reason, alias=alias, again=address("connect", alias))


class Services(Page):
    """List the services; POST with `alias` ends a connection.

    Users may end their own connections, and permitted users those of the project.
    """

    def get(self, request: HttpRequest) -> HttpResponse:
        """Render the list of services."""
        alias = request.GET.get("connected", "")
        services = services_of(self.user)
        done = any(service.alias == alias and service.is_connected for service in services)
        return self.show("services.html", services=services, done=_("%s is connected.") % alias if done else "")

    def post(self, request: HttpRequest) -> HttpResponse:
        """End a connection and render the list."""
        alias = request.POST.get("alias", "")
        service = next((one for one in services_of(self.user) if one.alias == alias), None)
        settings = connectable(alias)
        if service is None:
            text, good = _("This service is not connected."), False
        elif settings is None or not service.known:
            ClientToken.objects.filter(user=self.user, alias=alias).delete()
            text, good = _("%s is not connected any more. End the access there, too.") % alias, False
        elif async_to_sync(disconnect)(settings, owner_of(settings, self.user)):
            text, good = _("%s is not connected any more.") % alias, True
        else:
            text = _("%s is not used any more. It could not be notified, so end the access there, too.") % alias
            good = False
        return self.show("services.html", services=services_of(self.user), done=text if good else "", warning=text)


class Connect(Page):
    """Confirmation page (GET), and redirect to the authorization server (POST)."""

    def get(self, request: HttpRequest, alias: str) -> HttpResponse:
        """Render the page with the button."""
        settings = self.client(alias)
        service = next(one for one in services_of(self.user) if one.alias == alias)
        back = way_back(request, request.GET.get("next", ""))
        own = urlsplit(settings.url or "")
        # The redirect URL is unknown before the server is contacted, but browsers check redirects against this page's
        # policy.
        leads_to = ["https:"] if own.scheme == "https" else ["https:", "http:"]
        return self.show("connect.html", leads_to=leads_to, service=service, next=back)

    def post(self, request: HttpRequest, alias: str) -> HttpResponse:
        """Start a flow and redirect to the authorization server."""
        settings = self.client(alias)
        browser = request.session.get(BROWSER)
        if not isinstance(browser, str):
            browser = request.session[BROWSER] = secrets.token_urlsafe(32)
        redirect_uri = outside(request, address("callback", alias))
        back = way_back(request, request.POST.get("next", ""))
        try:
            url = async_to_sync(begin)(settings, self.user, browser=browser, redirect_uri=redirect_uri, back=back)
        except AuthorizationFailed as problem:
            return self.trouble(str(problem), 502, alias)
        return guarded(HttpResponseRedirect(url))


class Callback(Page):
    """Redirect URI of the authorization server."""

    http_method_names = ["get"]

    def after_login(self, request: HttpRequest) -> str:
        # The session that started the flow is lost, so the flow cannot finish. The code must not get into another URL.
        return address("connect", self.kwargs["alias"])

    @sensitive_variables("answer")
    def get(self, request: HttpRequest, alias: str) -> HttpResponse:
        """Finish the flow and redirect to the user's page."""
        settings = self.client(alias)
        if any(len(values) > 1 for _name, values in request.GET.lists()):
            return self.trouble("The response of the authorization server repeats a parameter", 400, alias)
        answer = {name: str(value) for name, value in request.GET.items()}
        browser = str(request.session.get(BROWSER) or "")
        try:
            back = async_to_sync(complete)(settings, self.user, browser=browser, answer=answer)
        except Denied:
            return self.trouble(_("You did not allow it, so nothing is connected."), 403, alias)
        except AuthorizationFailed as problem:
            return self.trouble(str(problem), 400, alias)

        done = f"{address('services')}?{urlencode({'connected': alias})}"
        return guarded(HttpResponseRedirect(way_back(request, back) or done))

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

from mcp_django.client.oauth.flow import UserDeclined, begin_flow, complete_flow, disconnect, get_token_owner
from mcp_django.client.oauth.http import AuthorizationFailed
from mcp_django.conf.clients import ClientSettings
from mcp_django.contrib.client_pages.services import (
    build_public_url,
    can_connect,
    get_connectable_settings,
    get_page_path,
    get_safe_return_url,
    list_services,
)
from mcp_django.extensions.html_pages import add_security_headers, build_login_url, render_html
from mcp_django.models import ClientToken

BROWSER_SESSION_KEY = "mcp_client_browser"
"""Session key of the browser's secret."""


@method_decorator([transaction.non_atomic_requests, login_not_required, csrf_protect], name="dispatch")
class ServicePageView(View):
    """Base class of pages for authenticated users.

    Other users are redirected to the login.
    """

    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return add_security_headers(
                HttpResponseRedirect(build_login_url(request, self.get_login_redirect(request)))
            )
        return super().dispatch(request, *args, **kwargs)

    def get_login_redirect(self, request: HttpRequest) -> str:
        """Return the URL to open after the login."""
        return request.get_full_path()

    @property
    def user(self) -> Any:
        """The authenticated user."""
        return self.request.user

    def get_client_settings(self, alias: str) -> ClientSettings:
        """Return the settings of a server. Raises Http404 if the user may not connect it."""
        settings = get_connectable_settings(alias)
        if settings is None or not can_connect(self.user, settings):
            raise Http404
        return settings

    def render_page(
        self, template: str, *, status: int = 200, leads_to: Iterable[str] = (), **context: Any
    ) -> HttpResponse:
        """Render a page.

        `leads_to` are Content-Security-Policy sources that its forms may redirect to.
        """
        known = {"user_name": str(self.user.get_username()), "services_url": get_page_path("services")}
        return render_html(
            self.request, f"mcp_clients/{template}", {**known, **context}, status=status, form_targets=leads_to
        )

    def render_problem(self, reason: str, status: int, alias: str, *, detail: str = "") -> HttpResponse:
        """Render the page for an error.

        `detail` is an error text in English. It is for the site's operators.
        """
        again = get_page_path("connect", alias)
        return self.render_page("problem.html", status=status, reason=reason, detail=detail, alias=alias, again=again)


class ServicesView(ServicePageView):
    """List the services; POST with `alias` ends a connection.

    Users may end their own connections, and permitted users those of the project.
    """

    def get(self, request: HttpRequest) -> HttpResponse:
        """Render the list of services."""
        alias = request.GET.get("connected", "")
        services = list_services(self.user)
        done = any(service.alias == alias and service.is_connected for service in services)
        return self.render_page("services.html", services=services, done=_("%s is connected.") % alias if done else "")

    def post(self, request: HttpRequest) -> HttpResponse:
        """End a connection and render the list."""
        alias = request.POST.get("alias", "")
        service = next((one for one in list_services(self.user) if one.alias == alias), None)
        settings = get_connectable_settings(alias)
        if service is None:
            text, is_success = _("This service is not connected."), False
        elif settings is None or not service.known:
            ClientToken.objects.filter(user=self.user, alias=alias).delete()
            text, is_success = _("%s is not connected any more. End the access there, too.") % alias, False
        elif async_to_sync(disconnect)(settings, get_token_owner(settings, self.user)):
            text, is_success = _("%s is not connected any more.") % alias, True
        else:
            text = _("%s is not used any more. It could not be notified, so end the access there, too.") % alias
            is_success = False
        return self.render_page(
            "services.html", services=list_services(self.user), done=text if is_success else "", warning=text
        )


class ConnectView(ServicePageView):
    """Confirmation page (GET), and redirect to the authorization server (POST)."""

    def get(self, request: HttpRequest, alias: str) -> HttpResponse:
        """Render the page with the button."""
        settings = self.get_client_settings(alias)
        service = next(one for one in list_services(self.user) if one.alias == alias)
        return_url = get_safe_return_url(request, request.GET.get("next", ""))
        server_url = urlsplit(settings.url or "")
        # The redirect URL is unknown before the server is contacted, but browsers check redirects against this page's
        # policy.
        leads_to = ["https:"] if server_url.scheme == "https" else ["https:", "http:"]
        return self.render_page("connect.html", leads_to=leads_to, service=service, next=return_url)

    def post(self, request: HttpRequest, alias: str) -> HttpResponse:
        """Start a flow and redirect to the authorization server."""
        settings = self.get_client_settings(alias)
        browser_secret = request.session.get(BROWSER_SESSION_KEY)
        if not isinstance(browser_secret, str):
            browser_secret = request.session[BROWSER_SESSION_KEY] = secrets.token_urlsafe(32)
        redirect_uri = build_public_url(request, get_page_path("callback", alias))
        return_url = get_safe_return_url(request, request.POST.get("next", ""))
        try:
            url = async_to_sync(begin_flow)(
                settings, self.user, browser_secret=browser_secret, redirect_uri=redirect_uri, return_url=return_url
            )
        except AuthorizationFailed as problem:
            return self.render_problem(_("The connection failed."), 502, alias, detail=str(problem))
        return add_security_headers(HttpResponseRedirect(url))


class CallbackView(ServicePageView):
    """Redirect URI of the authorization server."""

    http_method_names = ["get"]

    def get_login_redirect(self, request: HttpRequest) -> str:
        # The session that started the flow is lost, so the flow cannot finish. The code must not get into another URL.
        return get_page_path("connect", self.kwargs["alias"])

    @sensitive_variables("answer")
    def get(self, request: HttpRequest, alias: str) -> HttpResponse:
        """Finish the flow and redirect to the user's page."""
        settings = self.get_client_settings(alias)
        if any(len(values) > 1 for _name, values in request.GET.lists()):
            detail = "The response of the authorization server repeats a parameter"
            return self.render_problem(_("The connection failed."), 400, alias, detail=detail)
        answer = {name: str(value) for name, value in request.GET.items()}
        browser = str(request.session.get(BROWSER_SESSION_KEY) or "")
        try:
            return_url = async_to_sync(complete_flow)(
                settings, self.user, browser_secret=browser, response_params=answer
            )
        except UserDeclined:
            return self.render_problem(_("You did not allow it, so nothing is connected."), 403, alias)
        except AuthorizationFailed as problem:
            return self.render_problem(_("The connection failed."), 400, alias, detail=str(problem))

        done = f"{get_page_path('services')}?{urlencode({'connected': alias})}"
        return add_security_headers(HttpResponseRedirect(get_safe_return_url(request, return_url) or done))

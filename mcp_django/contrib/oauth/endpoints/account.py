"""Base of the account pages, and the page that switches the account."""

from typing import Any, ClassVar

from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext_lazy as _
from django.views import View
from django.views.decorators.csrf import csrf_protect

from mcp_django.contrib.oauth.endpoints.base import get_page_url, render_page
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.html_pages import add_security_headers, build_login_url

TITLES = {"connections": _("Applications"), "tokens": _("Personal tokens")}


@method_decorator([transaction.non_atomic_requests, login_not_required, csrf_protect], name="dispatch")
class AccountPage(View):
    """Page of the logged-in user. Other users cannot see it."""

    name: ClassVar[str]
    """Name of the page's URL."""
    template: ClassVar[str]
    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not self.is_served():
            raise Http404
        if not request.user.is_authenticated:
            return add_security_headers(HttpResponseRedirect(build_login_url(request, request.path)))
        return super().dispatch(request, *args, **kwargs)

    def is_served(self) -> bool:
        """Return True if the page is enabled."""
        return True

    @property
    def user(self) -> Any:
        """The logged-in user."""
        return self.request.user

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the page."""
        return self.show()

    def show(self, **context: Any) -> HttpResponse:
        """Render the page with `context`."""
        names = [name for name in TITLES if name != "tokens" or get_settings().personal_tokens]
        pages = [{"title": TITLES[name], "url": get_page_url(name), "is_here": name == self.name} for name in names]
        return render_page(self.request, self.template, {"pages": pages, "here": self.request.path, **context})


@method_decorator([login_not_required, csrf_protect], name="dispatch")
class SwitchAccount(View):
    """Log the user out and let another user log in for an authorization request.

    POST with `next`, the URL of the request. The response is a page instead of a redirect: if the login page is on
    another site, browsers do not follow a redirect after the form of the consent page.
    """

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        """Log out and show a link to the login page."""
        next_url = request.POST.get("next", "")
        return_url = next_url if _is_authorization_url(next_url) else get_page_url("connections")
        logout(request)
        return render_page(request, "signed_out.html", {"login_url": build_login_url(request, return_url)})


def _is_authorization_url(path: str) -> bool:
    """Return True for an authorization request of this server on this host."""
    is_authorize_path = path.partition("?")[0] == get_page_url("authorize")
    return is_authorize_path and url_has_allowed_host_and_scheme(path, allowed_hosts=None)

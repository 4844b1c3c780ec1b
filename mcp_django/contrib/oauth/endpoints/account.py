"""What the pages about a user's own access share, and the way from one account to another."""

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

from mcp_django.contrib.oauth.endpoints.base import address, page
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.html_pages import guarded, login_url

TITLES = {"connections": _("Applications"), "tokens": _("Personal tokens")}


@method_decorator([transaction.non_atomic_requests, login_not_required, csrf_protect], name="dispatch")
class AccountPage(View):
    """A page of the user who is logged in; nobody else sees anything of it."""

    name: ClassVar[str]
    """Of its URL."""
    template: ClassVar[str]
    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not self.is_served():
            raise Http404
        if not request.user.is_authenticated:
            return guarded(HttpResponseRedirect(login_url(request, request.path)))
        return super().dispatch(request, *args, **kwargs)

    def is_served(self) -> bool:
        """Is there such a page?"""
        return True

    @property
    def user(self) -> Any:
        """Who is logged in."""
        return self.request.user

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show it."""
        return self.show()

    def show(self, **context: Any) -> HttpResponse:
        """The page, with `context`."""
        names = [name for name in TITLES if name != "tokens" or get_settings().personal_tokens]
        pages = [{"title": TITLES[name], "url": address(name), "is_here": name == self.name} for name in names]
        return page(self.request, self.template, {"pages": pages, "here": self.request.path, **context})


@method_decorator([login_not_required, csrf_protect], name="dispatch")
class SwitchAccount(View):
    """POST with `next`, an authorization request, logs out and lets somebody else log in for it.

    It answers with a page and not with a redirect: where the site logs in elsewhere, the browser would not follow one
    from a form of the consent page.
    """

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        """Log out."""
        wanted = request.POST.get("next", "")
        back = wanted if _is_request(wanted) else address("connections")
        logout(request)
        return page(request, "signed_out.html", {"login_url": login_url(request, back)})


def _is_request(path: str) -> bool:
    """Is it an authorization request of this server, and nothing that leads elsewhere?"""
    asks = path.partition("?")[0] == address("authorize")
    return asks and url_has_allowed_host_and_scheme(path, allowed_hosts=None)

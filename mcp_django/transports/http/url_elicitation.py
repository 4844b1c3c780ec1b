"""URL-mode elicitation: views before and after the page (client/elicitation).

They run in a browser and need sessions, a login page and `request.user`. The logged-in user must be the user that was
elicited. Any other user gets 403, because the link may have been forwarded, and can sign in with another account.
"""

from collections.abc import Callable

from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.http import require_http_methods

from mcp_django.html_pages import build_login_url, render_html
from mcp_django.protocol.errors import InvalidParams
from mcp_django.runtime.url_elicitation import DONE_VIEW, OPEN_VIEW, PageVisit, SealedElicitationPages
from mcp_django.wiring import get_services

RespondFunction = Callable[[HttpRequest, SealedElicitationPages, PageVisit], HttpResponse]
DONE_TEMPLATE = "mcp_django/page_done.html"
EXPIRED_TEMPLATE = "mcp_django/page_expired.html"
OTHER_ACCOUNT_TEMPLATE = "mcp_django/page_other_account.html"
SIGNED_OUT_TEMPLATE = "mcp_django/page_signed_out.html"


def _build_view(purpose: str, respond: RespondFunction) -> Callable[..., HttpResponse]:
    @never_cache
    @require_http_methods(["GET", "POST"])
    @login_required
    @csrf_protect
    def view(request: HttpRequest, /, token: str, **kwargs: str) -> HttpResponse:
        pages = get_services().elicitation_pages
        try:
            visit = pages.unseal_visit(token, purpose)
        except InvalidParams:
            return _render(request, EXPIRED_TEMPLATE, status=404)

        if str(request.user.pk) != visit.user:
            return _switch_account(request) if request.method == "POST" else _offer_other_account(request)
        if request.method == "POST":
            return HttpResponseNotAllowed(["GET"])
        response = respond(request, pages, visit)
        # The URL holds the token.
        response["Referrer-Policy"] = "no-referrer"
        return response

    return view


def _redirect_to_page(request: HttpRequest, pages: SealedElicitationPages, visit: PageVisit) -> HttpResponse:
    if pages.is_finished(visit.id):
        return _render_done(request, is_repeated=True)
    return HttpResponseRedirect(visit.target)


def _finish_page(request: HttpRequest, pages: SealedElicitationPages, visit: PageVisit) -> HttpResponse:
    return _render_done(request, is_repeated=not pages.mark_finished(visit))


def _render_done(request: HttpRequest, *, is_repeated: bool) -> HttpResponse:
    return _render(request, DONE_TEMPLATE, status=410 if is_repeated else 200, again=is_repeated)


def _offer_other_account(request: HttpRequest) -> HttpResponse:
    return _render(request, OTHER_ACCOUNT_TEMPLATE, status=403)


def _switch_account(request: HttpRequest) -> HttpResponse:
    """Log out and show a link to the login page.

    The response is no redirect: browsers follow none from a form to a login page on another site.
    """
    login_url = build_login_url(request, request.get_full_path())
    logout(request)
    return _render(request, SIGNED_OUT_TEMPLATE, login_url=login_url)


def _render(request: HttpRequest, template: str, *, status: int = 200, **context: object) -> HttpResponse:
    user_name = request.user.get_username() if request.user.is_authenticated else ""
    return render_html(request, template, {"user_name": user_name, **context}, status=status)


open_page, page_done = _build_view(OPEN_VIEW, _redirect_to_page), _build_view(DONE_VIEW, _finish_page)

"""URL-mode elicitation: views before and after the page (client/elicitation).

They run in a browser and need sessions, a login page and `request.user`. The logged-in user must be the user that was
elicited. Any other user gets 403, because the link may have been forwarded.
"""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from mcp_django.protocol.errors import InvalidParams
from mcp_django.runtime.url_elicitation import DONE_VIEW, OPEN_VIEW, PageVisit, SealedElicitationPages
from mcp_django.wiring import get_elicitation_pages

RespondFunction = Callable[[HttpRequest, SealedElicitationPages, PageVisit], HttpResponse]
DONE_TEMPLATE = "mcp_django/page_done.html"


def _build_view(purpose: str, respond: RespondFunction) -> Callable[..., HttpResponse]:
    @never_cache
    @require_GET
    @login_required
    def view(request: HttpRequest, /, token: str, **kwargs: Any) -> HttpResponse:
        site = get_elicitation_pages()
        try:
            visit = site.unseal_visit(token, purpose)
        except InvalidParams:
            raise Http404(_("This link has expired. Request the page again in your client.")) from None
        if str(request.user.pk) != visit.user:
            raise PermissionDenied(_("This link is for another user."))
        response = respond(request, site, visit)
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
    return render(request, DONE_TEMPLATE, {"again": is_repeated}, status=410 if is_repeated else 200)


open_page, page_done = _build_view(OPEN_VIEW, _redirect_to_page), _build_view(DONE_VIEW, _finish_page)

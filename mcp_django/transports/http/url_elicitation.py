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
from mcp_django.runtime.url_elicitation import DONE, OPEN, SitePages, Visit
from mcp_django.wiring import pages

Response = Callable[[HttpRequest, SitePages, Visit], HttpResponse]
TEMPLATE = "mcp_django/page_done.html"


def _view(purpose: str, respond: Response) -> Callable[..., HttpResponse]:
    @never_cache
    @require_GET
    @login_required
    def view(request: HttpRequest, /, token: str, **kwargs: Any) -> HttpResponse:
        site = pages()
        try:
            visit = site.open(token, purpose)
        except InvalidParams:
            raise Http404(_("This link has expired. Request the page again in your client.")) from None
        if str(request.user.pk) != visit.user:
            raise PermissionDenied(_("This link is for another user."))
        response = respond(request, site, visit)
        # The URL holds the token.
        response["Referrer-Policy"] = "no-referrer"
        return response

    return view


def _open(request: HttpRequest, site: SitePages, visit: Visit) -> HttpResponse:
    if site.is_finished(visit.id):
        return _said(request, again=True)
    return HttpResponseRedirect(visit.target)


def _done(request: HttpRequest, site: SitePages, visit: Visit) -> HttpResponse:
    return _said(request, again=not site.finish(visit))


def _said(request: HttpRequest, *, again: bool) -> HttpResponse:
    return render(request, TEMPLATE, {"again": again}, status=410 if again else 200)


open_page, page_done = _view(OPEN, _open), _view(DONE, _done)

"""View of the metrics, for a scraper with a token, or for staff. It is off by default."""

import hmac
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from mcp_django.contrib.control_room.metric_families import read_families
from mcp_django.contrib.control_room.openmetrics import CONTENT_TYPE, iter_lines
from mcp_django.contrib.control_room.options import get_metrics_settings

PERMISSION = "mcp_control_room.view_controlroom"
SCHEME = "bearer"


@login_not_required
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics of all processes."""
    if not get_metrics_settings().enabled:
        raise Http404("The metrics are off")
    if not (_has_token(request) or _is_permitted(getattr(request, "user", None))):
        return HttpResponse("A token is required.\n", "text/plain", 401, headers={"WWW-Authenticate": "Bearer"})
    return HttpResponse("".join(iter_lines(read_families())), CONTENT_TYPE)


def _has_token(request: HttpRequest) -> bool:
    """Return True if the request carries the token."""
    token = get_metrics_settings().token
    scheme, _space, credential = request.headers.get("Authorization", "").partition(" ")
    if token is None or scheme.lower() != SCHEME:
        return False
    return hmac.compare_digest(credential.strip().encode("utf-8", "replace"), token.encode())


def _is_permitted(user: Any) -> bool:
    """Return True for staff who may open the control room."""
    return user is not None and user.is_active and user.is_staff and user.has_perm(PERMISSION)

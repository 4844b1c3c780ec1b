"""Registration endpoint (`/o/register/`): clients register themselves (RFC 7591).

Registration is open, so it grants little: the client may request the consent of users, and acts for no user, even if
one is logged in. Registrations cannot be read or changed later (RFC 7592), so no token for that is issued.
"""

from typing import Any, Final

from django.contrib.auth.decorators import login_not_required
from django.db import Error as DatabaseFailure
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from django.utils.decorators import method_decorator
from django.utils.log import log_response
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from mcp_django.auth.throttling import throttle
from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.clients.client_metadata import MOST_BYTES, Refused, read_json, read_registration
from mcp_django.contrib.oauth.endpoints.endpoint import address_of, later, readable, told
from mcp_django.contrib.oauth.options import get_settings

FULL_WAIT: Final = 3600
"""Retry time in seconds if the limit of clients is reached. An operator must make room."""
METHODS: Final = "POST, OPTIONS"


@method_decorator([transaction.non_atomic_requests, csrf_exempt, login_not_required], name="dispatch")
class Register(View):
    """Create a client from the JSON metadata of a POST request.

    Errors follow section 3.2.2, or are `temporarily_unavailable` with `Retry-After`.
    """

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = self._answer(request)
        response["Cache-Control"], response["Pragma"] = "no-store", "no-cache"
        return readable(response, METHODS)

    def _answer(self, request: HttpRequest) -> HttpResponse:
        if not get_settings().dynamic_registration:
            return told(404, error="not_found")
        if request.method == "OPTIONS":
            return HttpResponse(status=204)
        if request.method != "POST":
            return told(405, {"Allow": METHODS}, error="invalid_request", error_description="Use POST")

        address = address_of(request)
        if (wait := throttle.allow("REGISTRATION", address)) is not None:
            return later(wait, 429)

        try:
            return _register(request, address)
        except Refused as problem:
            return told(400, error=problem.code, error_description=problem.description)
        except clients.TooMany:
            return later(FULL_WAIT, 503)
        except DatabaseFailure as problem:
            response = later(5, 503)
            log_response("Database access failed: %s", problem, response=response, request=request, exception=problem)
            return response


def _register(request: HttpRequest, address: str) -> HttpResponse:
    metadata = read_registration(read_json(_body(request)), schemes=get_settings().native_schemes)
    application, secret = clients.register(metadata, address=address)
    members = {"client_id": application.client_id, "client_id_issued_at": int(application.created.timestamp())}
    if secret:
        members |= {"client_secret": secret, "client_secret_expires_at": 0}
    return told(201, **members, **metadata.registered())


def _body(request: HttpRequest) -> bytes:
    """Read the body up to the size limit plus one byte.

    Raises:
        ClientMetadataRefused: a wrong content type or an incomplete body.
    """
    if request.content_type != "application/json":
        raise Refused("the content type must be application/json")
    try:
        return request.read(MOST_BYTES + 1)
    except UnreadablePostError:
        raise Refused("the request ended before its body") from None

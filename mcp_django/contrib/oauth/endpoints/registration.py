"""Registration endpoint (`/o/register/`): clients register themselves (RFC 7591).

Registration is open, so it grants little: the client may request the consent of users, and acts for no user, even if
one is logged in. Registrations cannot be read or changed later (RFC 7592), so no token for that is issued.
"""

from typing import Final

from django.contrib.auth.decorators import login_not_required
from django.db import Error as DatabaseFailure
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from django.views.decorators.csrf import csrf_exempt

from mcp_django.auth import throttling
from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.clients.client_metadata import (
    MAX_METADATA_BYTES,
    ClientMetadataRefused,
    read_json,
    read_registration,
)
from mcp_django.contrib.oauth.endpoints.endpoint import (
    METHODS,
    add_cors_headers,
    database_failure_response,
    disable_caching,
    get_request_address,
    json_response,
    retry_later_response,
)
from mcp_django.contrib.oauth.options import get_settings

FULL_RETRY_SECONDS: Final = 3600
"""Retry time in seconds if the limit of clients is reached. An operator must make room."""


@transaction.non_atomic_requests
@csrf_exempt
@login_not_required
def register(request: HttpRequest) -> HttpResponse:
    """Create a client from the JSON metadata of a POST request.

    Errors follow section 3.2.2, or are `temporarily_unavailable` with `Retry-After`.
    """
    return add_cors_headers(disable_caching(_handle(request)), METHODS)


def _handle(request: HttpRequest) -> HttpResponse:
    if not get_settings().dynamic_registration:
        return json_response(404, error="not_found")
    if request.method == "OPTIONS":
        return HttpResponse(status=204)
    if request.method != "POST":
        return json_response(405, {"Allow": METHODS}, error="invalid_request", error_description="Use POST")

    address = get_request_address(request)
    if (wait := throttling.count("REGISTRATION", address)) is not None:
        return retry_later_response(wait, 429)

    try:
        return _register(request, address)
    except ClientMetadataRefused as problem:
        return json_response(400, error=problem.code, error_description=problem.description)
    except clients.TooManyClients:
        return retry_later_response(FULL_RETRY_SECONDS, 503)
    except DatabaseFailure as problem:
        return database_failure_response(request, problem)


def _register(request: HttpRequest, address: str) -> HttpResponse:
    if request.content_type != "application/json":
        raise ClientMetadataRefused("the content type must be application/json")
    try:
        body = request.read(MAX_METADATA_BYTES + 1)
    except UnreadablePostError:
        raise ClientMetadataRefused("the request ended before its body") from None

    metadata = read_registration(read_json(body), schemes=get_settings().native_schemes)
    application, secret = clients.register_client(metadata, address=address)
    members = {"client_id": application.client_id, "client_id_issued_at": int(application.created.timestamp())}
    if secret:
        members |= {"client_secret": secret, "client_secret_expires_at": 0}
    return json_response(201, **members, **metadata.build_response_members())

"""Common behaviour of the machine endpoints.

Forms are parsed strictly, and JSON responses are not cacheable. Pages of any origin may read the responses, because no
cookie is used.
"""

import functools
import re
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, Final

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import BadRequest, SuspiciousOperation
from django.db import Error as DatabaseFailure
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import RawPostDataException, UnreadablePostError
from django.utils.log import log_response
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters

from mcp_django.auth import throttling
from mcp_django.auth.requests import FORWARDED_HEADERS, UNKNOWN_ADDRESS, get_client_address, select_headers
from mcp_django.contrib.oauth.tokens import credentials
from mcp_django.extensions.errors import Overloaded

MAX_FORM_BYTES: Final = 64 * 1024
"""Maximum number of bytes of a form."""
MAX_PARAMETER_CHARS: Final = 8 * 1024
"""Maximum number of characters of a parameter."""
MAX_RESOURCE_PARAMETERS: Final = 20
FORM_CONTENT_TYPE: Final = "application/x-www-form-urlencoded"
FAILURE_RATE_NAME: Final = "TOKEN_FAILURES"
"""Name of the rate in `MCP["RATES"]` that limits rejected credentials."""
SECRET_PARAMETERS: Final = ("client_secret", "code", "code_verifier", "refresh_token", "token", "password", "assertion")

_MALFORMED: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffd]")
"""Control characters, and invalid UTF-8 (U+FFFD in Django)."""
METHODS: Final = "POST, OPTIONS"

View = Callable[[HttpRequest], HttpResponse]


class EndpointError(Exception):
    """Error response of RFC 6749, section 5.2.

    `description` is ASCII and contains nothing of the request.
    """

    def __init__(self, error: str, description: str, *, status: int = 400) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status


def endpoint(view: View) -> View:
    """Decorate a view function that accepts a form by POST.

    Guessing of credentials is rate-limited.
    """

    @functools.wraps(view)
    def guarded(request: HttpRequest) -> HttpResponse:
        if request.method == "OPTIONS":
            return add_cors_headers(HttpResponse(status=204), METHODS)
        return add_cors_headers(disable_caching(_handle(view, request)), METHODS)

    # The endpoints manage transactions themselves: each transaction starts with its write, and revocations after a
    # failure must persist.
    ready = transaction.non_atomic_requests(csrf_exempt(sensitive_post_parameters(*SECRET_PARAMETERS)(guarded)))
    return login_not_required(ready)


def _handle(view: View, request: HttpRequest) -> HttpResponse:
    address = get_request_address(request)
    # Behind proxies that are missing in the settings, all clients have one address. One client must not use up their
    # rate.
    is_counted = address != UNKNOWN_ADDRESS

    try:
        if is_counted and (wait := throttling.count(FAILURE_RATE_NAME, address, dry_run=True)) is not None:
            return retry_later_response(wait, 429)
        if request.method != "POST":
            raise EndpointError("invalid_request", "Use POST", status=405)
        check_form(request)
        response = view(request)
    except EndpointError as problem:
        response = json_response(problem.status, error=problem.error, error_description=problem.description)
    except (DatabaseFailure, Overloaded) as problem:
        response = database_failure_response(request, problem)

    if response.status_code == 405:
        response["Allow"] = METHODS
    if response.status_code == 401:
        response.setdefault("WWW-Authenticate", 'Basic realm="mcp"')
    if is_counted and is_failure(response):
        throttling.count(FAILURE_RATE_NAME, address)
    return response


def is_failure(response: HttpResponse) -> bool:
    """Return True if a credential was rejected."""
    return response.status_code == 401 or (response.status_code == 400 and b'"invalid_grant"' in response.content)


def check_form(request: HttpRequest) -> None:
    """Check that the request has an unambiguous form.

    Raises:
        EndpointError: a malformed, oversized or ambiguous form.
    """
    if request.META.get("QUERY_STRING"):
        raise EndpointError("invalid_request", "Send the parameters in the body")

    charset = (request.content_params or {}).get("charset", "utf-8")
    if request.content_type != FORM_CONTENT_TYPE or charset.lower() not in ("utf-8", "utf8"):
        raise EndpointError("invalid_request", f"The content type must be {FORM_CONTENT_TYPE}")
    length = request.META.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or int(length) > MAX_FORM_BYTES:
        raise EndpointError("invalid_request", "The form is too long", status=413)

    try:
        request.encoding = "utf-8"
        if len(request.body) > MAX_FORM_BYTES:
            raise EndpointError("invalid_request", "The form is too long", status=413)
        form = request.POST
    except (SuspiciousOperation, BadRequest, UnreadablePostError, RawPostDataException, UnicodeError):
        raise EndpointError("invalid_request", "The form cannot be read") from None

    for name, values in form.lists():
        if len(values) > (MAX_RESOURCE_PARAMETERS if name == "resource" else 1):
            raise EndpointError("invalid_request", "A parameter is repeated")
        if any(len(text) > MAX_PARAMETER_CHARS or _MALFORMED.search(text) for text in (name, *map(str, values))):
            raise EndpointError("invalid_request", "A parameter is malformed")


def json_response(status: int = 200, headers: Mapping[str, str] | None = None, **members: Any) -> HttpResponse:
    """Return a response whose JSON object has these members."""
    return JsonResponse(members, status=status, headers=dict(headers or {}))


def retry_later_response(wait: float, status: int) -> HttpResponse:
    """Return a response with `Retry-After` in seconds."""
    reason = "Too many requests were rejected" if status == 429 else "Temporarily unavailable"
    return json_response(
        status,
        {"Retry-After": str(ceil(wait))},
        error="temporarily_unavailable",
        error_description=f"{reason}; try again later",
    )


def database_failure_response(request: HttpRequest, problem: Exception) -> HttpResponse:
    """Log a failure of the database and return a temporary error."""
    response = retry_later_response(5, 503)
    log_response("Database access failed: %s", problem, response=response, request=request, exception=problem)
    return response


def add_cors_headers(response: HttpResponse, methods: str) -> HttpResponse:
    """Allow pages of any origin to read the response without cookies (CORS)."""
    response["Access-Control-Allow-Origin"] = "*"
    response["Access-Control-Allow-Methods"] = methods
    response["Access-Control-Allow-Headers"] = "authorization, content-type, mcp-protocol-version"
    response["Access-Control-Expose-Headers"] = "www-authenticate, retry-after"
    response["Access-Control-Max-Age"] = "600"
    return response


def disable_caching(response: HttpResponse) -> HttpResponse:
    """Forbid caches to store the response."""
    response["Cache-Control"], response["Pragma"] = "no-store", "no-cache"
    return response


def get_request_address(request: HttpRequest) -> str:
    """Return the client address for rate limits."""
    return get_client_address(request.META.get("REMOTE_ADDR"), select_headers(request, FORWARDED_HEADERS))


def read_client_credentials(request: HttpRequest) -> credentials.ClientCredentials:
    """Return the client credentials in a request.

    Raises:
        EndpointError: no credentials, or malformed ones.
    """
    try:
        found_credentials = credentials.read_credentials(request.META.get("HTTP_AUTHORIZATION"), request.POST)
    except credentials.MalformedCredentials as problem:
        raise EndpointError("invalid_client", str(problem), status=401) from None
    if found_credentials is None:
        raise EndpointError("invalid_client", "client_id is missing", status=401)
    return found_credentials


def authenticate_client(request: HttpRequest) -> Any:
    """Return the application of the calling client. A public client only sends its id.

    Raises:
        EndpointError: an unknown client or wrong credentials.
    """
    application = credentials.authenticate(read_client_credentials(request))
    if application is None:
        raise EndpointError("invalid_client", "The client is unknown, or its credentials are wrong", status=401)
    return application


def get_parameter(request: HttpRequest, name: str) -> str:
    """Return a parameter of the form. Raises EndpointError if it is missing."""
    value = request.POST.get(name)
    if not value:
        raise EndpointError("invalid_request", f"The parameter {name} is missing")
    return value

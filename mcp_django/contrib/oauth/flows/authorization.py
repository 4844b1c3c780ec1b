"""Authorization requests (RFC 6749, section 4.1.1): parsing, validation and response.

All parameters are in the query, even when the user's decision is posted. Therefore the request is fully validated
again, and the form contains nothing that could be altered. `AuthorizationDenied` errors are sent to the client. If the
client or its redirect URI is in doubt, `UntrustedAuthorizationRequest` is raised and the user is not redirected.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit, urlunsplit

from django.http import HttpRequest, QueryDict
from oauth2_provider.oauth2_backends import get_oauthlib_core
from oauthlib.oauth2 import FatalClientError, OAuth2Error

from mcp_django.contrib.oauth.tokens import resource_indicators
from mcp_django.contrib.oauth.toolkit_compat import oauth2_settings

SINGLE_PARAMETERS = (
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "code_challenge",
    "code_challenge_method",
)
"""Parameters that may appear once only (RFC 6749, section 3.1). `resource` may repeat."""
MAX_PARAMETER_CHARS = 4096
"""Maximum number of characters of a parameter."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")  # RFC 7636, section 4.2, for S256


class UntrustedAuthorizationRequest(Exception):
    """Error: the sender of the request cannot be trusted, and the user is not redirected.

    `error` is a code of RFC 6749, section 4.1.2.1.
    """

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.description = description


class AuthorizationDenied(Exception):
    """Error that is sent to the client's valid redirect URI."""

    def __init__(self, error: str, description: str, *, redirect_uri: str, state: str | None) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.redirect_uri = redirect_uri
        self.state = state

    @property
    def location(self) -> str:
        """URL that the user is redirected to."""
        parameters = {"error": self.error, "error_description": self.description or None}
        return build_redirect(self.redirect_uri, {**parameters, "state": self.state})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRequest:
    """Valid authorization request."""

    application: Any
    redirect_uri: str
    state: str | None
    scopes: tuple[str, ...]
    """Requested scopes that exist."""
    resources: tuple[str, ...]
    """Canonical URLs (RFC 8707); at least one."""
    credentials: Mapping[str, Any]
    """Credentials as parsed by oauthlib."""

    def build_denial(self, error: str, description: str) -> AuthorizationDenied:
        """Build the error that rejects this request with a reason for the client."""
        return AuthorizationDenied(error, description, redirect_uri=self.redirect_uri, state=self.state)


def read_client_id(request: HttpRequest) -> str:
    """Return the `client_id` of a request.

    Raises:
        UntrustedAuthorizationRequest: malformed parameters.
    """
    return _read_parameters(request.GET).get("client_id") or ""


def read_authorization_request(request: HttpRequest) -> AuthorizationRequest:
    """Parse and validate the request in the query of `request`.

    Raises:
        UntrustedAuthorizationRequest: the client or its redirect URI is invalid.
        AuthorizationDenied: another error, which is sent to the client.
    """
    query = _read_parameters(request.GET)
    state = query.get("state")
    try:
        scopes, credentials = get_oauthlib_core().server.validate_authorization_request(
            _build_uri(request, query), http_method="GET", body=None, headers=_get_headers(request)
        )
    except OAuth2Error as problem:
        text = problem.description or ""
        if isinstance(problem, FatalClientError) or not problem.redirect_uri:
            raise UntrustedAuthorizationRequest(problem.error, text) from None
        raise AuthorizationDenied(problem.error, text, redirect_uri=problem.redirect_uri, state=state) from None

    deny = functools.partial(AuthorizationDenied, redirect_uri=credentials["redirect_uri"], state=state)
    if query.get("response_type") != "code":
        raise deny("unsupported_response_type", "The response type must be code")
    if query.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(query.get("code_challenge", "")):
        raise deny("invalid_request", "A code challenge with the method S256 is required")

    application = credentials["request"].client
    try:
        resources = resource_indicators.resolve_resources(query.getlist("resource"), application)
    except resource_indicators.UnknownTarget as problem:
        raise deny("invalid_target", str(problem)) from None

    return AuthorizationRequest(
        application=application,
        redirect_uri=credentials["redirect_uri"],
        state=state,
        scopes=tuple(dict.fromkeys(scopes)),
        resources=tuple(resources),
        credentials={name: credentials[name] for name in credentials if name != "request"},
    )


def issue_code(request: HttpRequest, auth_request: AuthorizationRequest, scopes: Sequence[str]) -> str:
    """Issue a code for at least one scope, and return the URL to redirect to.

    Raises:
        UntrustedAuthorizationRequest: the client or its redirect URI is invalid.
        AuthorizationDenied: another error, which is sent to the client.
    """
    credentials = {**auth_request.credentials, "user": request.user, "resource": list(auth_request.resources)}
    try:
        headers, _body, _status = get_oauthlib_core().server.create_authorization_response(
            uri=_build_uri(request, _read_parameters(request.GET)),
            http_method="GET",
            headers=_get_headers(request),
            scopes=list(scopes),
            credentials=credentials,
        )
    except FatalClientError as problem:
        raise UntrustedAuthorizationRequest(problem.error, problem.description or "") from None
    except OAuth2Error as problem:
        raise auth_request.build_denial(problem.error, problem.description or "") from None

    parameters = dict(parse_qsl(urlsplit(headers["Location"]).query))
    if "code" not in parameters:
        raise auth_request.build_denial(
            parameters.get("error", "server_error"), parameters.get("error_description", "")
        )
    return build_redirect(auth_request.redirect_uri, {"code": parameters["code"], "state": auth_request.state})


def build_redirect(uri: str, parameters: Mapping[str, str | None]) -> str:
    """Add `parameters` and `iss` (RFC 9207) to a redirect URI, and keep its other parameters."""
    parts = urlsplit(uri)
    own = {name: value for name, value in parameters.items() if value is not None}
    own["iss"] = oauth2_settings.OIDC_ISS_ENDPOINT
    others = [pair for pair in parts.query.split("&") if pair and unquote_plus(pair.partition("=")[0]) not in own]
    query = "&".join([*others, urlencode(own)])
    return urlunsplit(parts._replace(query=query))


def _read_parameters(raw_query: QueryDict) -> QueryDict:
    """Return the known parameters only; for example, no client may choose the prompt.

    Raises:
        UntrustedAuthorizationRequest: repeated, oversized or malformed parameters.
    """
    query = QueryDict(mutable=True)
    for name in (*SINGLE_PARAMETERS, "resource"):
        values = raw_query.getlist(name)
        if len(values) > 1 and name != "resource":
            raise UntrustedAuthorizationRequest("invalid_request", f"The parameter {name} is repeated")
        if any(len(value) > MAX_PARAMETER_CHARS or _CONTROL.search(value) for value in values) or len(values) > 20:
            raise UntrustedAuthorizationRequest("invalid_request", f"The parameter {name} is malformed")
        non_empty = [value for value in values if value.strip(" ")]  # empty parameters count as missing (section 3.1)
        if non_empty:
            query.setlist(name, non_empty)
    return query


def _build_uri(request: HttpRequest, query: QueryDict) -> str:
    return f"{request.path}?{query.urlencode()}"


def _get_headers(request: HttpRequest) -> Any:
    return get_oauthlib_core().extract_headers(request)

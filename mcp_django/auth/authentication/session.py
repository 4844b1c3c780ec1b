"""Session authentication: users of the site, by the session cookie.

A browser sends the cookie with requests of any page, so a request must prove that a page of this site made it. Unsafe
methods need Django's CSRF token, which is checked here because the endpoints are exempt from the middleware. An Origin
header, if present, must name this site. Such pages have a fixed set of scopes.
"""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from typing import Any, Final

from django.conf import settings as django_settings
from django.contrib.auth import get_user, get_user_model
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import DisallowedHost, PermissionDenied
from django.db import Error as DatabaseFailure
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _

from mcp_django.auth.authentication.challenges import build_forbidden
from mcp_django.auth.authentication.verifiers import UNAVAILABLE_MESSAGE, AuthError, hold_lease
from mcp_django.auth.principal import PROJECT_ISSUER, DjangoPrincipal
from mcp_django.auth.requests import AuthRequest
from mcp_django.models.service_account import is_service_account
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.ports import Executor

logger = get_logger("mcp_django.auth")

SESSION_KIND: Final = "session"
"""Kind of these principals, and the client they use."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class SessionAuthenticator:
    """Authenticator of users who are logged in to the site."""

    def __init__(self, scopes: frozenset[str], *, executor: Executor) -> None:
        self._scopes = scopes
        self._executor = executor

    def get_session_key(self, request: AuthRequest) -> str | None:
        """Return the session key of the request, or None."""
        return request.cookies.get(django_settings.SESSION_COOKIE_NAME) or None

    async def authenticate(self, request: AuthRequest) -> DjangoPrincipal | None:
        """Return the principal of the logged-in user, or None without one.

        Raises:
            TransportRefusal: 403, the request was not made by a page of this site.
            AuthError: the session cannot be read.
        """
        with hold_lease(self._executor):
            try:
                user, reason = await self._executor.run(self._load_user, request)
            except DatabaseFailure as problem:
                logger.error("Sessions cannot be read: %s", problem)
                raise AuthError("unavailable", UNAVAILABLE_MESSAGE) from None

        if user is None:
            return None
        if reason is not None:
            raise build_forbidden("This request does not come from a page of this site")

        return DjangoPrincipal(
            issuer=PROJECT_ISSUER,
            subject=str(user.pk),
            client_id=SESSION_KIND,
            user=user,
            scopes=self._scopes,
            kind=SESSION_KIND,
            grant_id=next(_iter_login_digests(user), None),
        )

    def reload(self, principal: DjangoPrincipal) -> DjangoPrincipal | None:
        """Return the principal as now. A change of the password ends it, as it ends all sessions of the user.

        The session itself is not looked at: its key is not stored, and changes with each login.
        """
        if principal.kind != SESSION_KIND:
            return None
        user = principal.user
        if principal.grant_id not in (None, *_iter_login_digests(user)):
            raise AuthError("invalid_token", "The sessions of this user have ended")
        return replace(principal, scopes=self._scopes)

    def _load_user(self, request: AuthRequest) -> tuple[Any, str | None]:
        """Return the user, and the reason to refuse the request or None."""
        http_request = _CSRFRequest(request)
        http_request.session = import_string(f"{django_settings.SESSION_ENGINE}.SessionStore")(
            self.get_session_key(request)
        )
        user: Any = get_user(http_request)
        if not user.is_authenticated or not user.is_active:
            return None, None
        return user, _find_refusal_reason(http_request)


def _iter_login_digests(user: Any) -> Iterator[str]:
    """Yield digests of the hash that ends sessions after a change of the password.

    That of the current SECRET_KEY comes first. The user model may have none.
    """
    get_hash = getattr(user, "get_session_auth_hash", None)
    if get_hash is None:
        return
    for text in chain([get_hash()], user.get_session_auth_fallback_hash()):
        yield sha256(text.encode()).hexdigest()


def _find_refusal_reason(http_request: HttpRequest) -> str | None:
    check = _CSRFCheck(_no_response)
    try:
        if http_request.method in SAFE_METHODS:
            # Not in the type stubs.
            is_same_origin = getattr(check, "_origin_verified")  # noqa: B009
            is_foreign = "HTTP_ORIGIN" in http_request.META and not is_same_origin(http_request)
            return "a foreign Origin" if is_foreign else None
        check.process_request(http_request)
        reason: Any = check.process_view(http_request, _no_response, (), {})
    except DisallowedHost:
        return "a foreign Host"
    return None if reason is None else str(reason)


def _no_response(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class _CSRFCheck(CsrfViewMiddleware):
    """CSRF check that returns the reason of a failure instead of a response."""

    def _reject(self, request: HttpRequest, reason: str) -> Any:
        return reason


class _CSRFRequest(HttpRequest):
    """The parts of a request that the CSRF check reads."""

    def __init__(self, request: AuthRequest) -> None:
        super().__init__()
        self.method = request.method
        self._request_scheme = request.scheme
        self.META = {"REQUEST_METHOD": request.method, "SERVER_NAME": "", "SERVER_PORT": ""}
        for name, value in request.headers.items():
            self.META[f"HTTP_{name.upper().replace('-', '_')}"] = value
        self.COOKIES = request.cookies

    def _get_scheme(self) -> str:
        return self._request_scheme


def refuse_login(*, request: Any = None, user: Any = None, **kwargs: Any) -> None:
    """Refuse the login of a service account: the receiver of `user_logged_in`.

    Django has stored the user in the session already, so the session is emptied.

    Raises:
        PermissionDenied: the user is a service account.
    """
    if not isinstance(user, get_user_model()) or not is_service_account(user.pk):
        return
    session = getattr(request, "session", None)
    if session is not None:
        session.flush()
    if hasattr(request, "user"):
        request.user = AnonymousUser()
    raise PermissionDenied(_("A service account cannot log in. It uses its tokens only."))

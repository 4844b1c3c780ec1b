"""Authorization endpoint (`/o/authorize/`): requests the user's consent for a client."""

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import DisallowedRedirect
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views import View
from django.views.decorators.csrf import csrf_protect
from oauth2_provider.http import OAuth2ResponseRedirect

from mcp_django.contrib.oauth.clients import document_clients
from mcp_django.contrib.oauth.clients.display import Target, client_of, target_of
from mcp_django.contrib.oauth.clients.display_names import resource_name, together
from mcp_django.contrib.oauth.endpoints.base import address, page
from mcp_django.contrib.oauth.flows import authorization, consents, scope_choices
from mcp_django.contrib.oauth.flows.authorization import Asked, Denied, Refused
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.toolkit_compat import oauth2_settings
from mcp_django.html_pages import guarded, login_url

PROMPTS = frozenset({"none", "login", "consent", "select_account"})
"""Supported values of `prompt` (OpenID Connect Core 1.0, section 3.1.2.1).

A client can require additional prompts, but cannot suppress any.
"""


@method_decorator([transaction.non_atomic_requests, login_not_required, csrf_protect], name="dispatch")
class Authorize(View):
    """Authorization page.

    GET shows the page, or redirects at once if the consent is remembered. POST processes the decision: `allow` or any
    other button, and `granted` once per ticked scope. The request itself is in the query, as for GET.
    """

    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return super().dispatch(request, *args, **kwargs)
        except Denied as problem:
            return _leave(request, problem.location)
        except Refused as problem:
            return _error_page(request, problem)

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the consent page, or redirect if no decision is needed."""
        prompt = PROMPTS & set(request.GET.get("prompt", "").split())
        if not request.user.is_authenticated:
            return self._log_in(request, prompt)
        if prompt == {"login"}:
            return self._again(request)

        asked, scopes = _read(request)
        silent = not prompt & {"consent", "select_account", "login"} and _is_known(request, asked, scopes)
        if silent:
            return _leave(request, authorization.grant(request, asked, scopes))
        if "none" in prompt:
            raise asked.denied("consent_required", "The consent of the user is required")
        return _ask(request, asked, scopes)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Process the user's decision."""
        if not request.user.is_authenticated:
            return guarded(HttpResponseRedirect(login_url(request, request.get_full_path())))

        asked, scopes = _read(request)
        if not request.POST.get("allow"):
            raise asked.denied("access_denied", "The user denied the request")

        ticked = request.POST.getlist("granted")
        granted = [scope for scope in scopes if scope in ticked]
        if not granted:
            problem = _("Nothing is selected. Select the access that the application may have, or cancel.")
            return _ask(request, asked, scopes, problem=problem)

        # The consent is saved first, so that the user sees the client even if issuing the code fails.
        consents.give(request.user, asked.application, asked.resources, granted)
        return _leave(request, authorization.grant(request, asked, granted))

    def _log_in(self, request: HttpRequest, prompt: frozenset[str]) -> HttpResponse:
        if "none" in prompt:
            asked = authorization.read(request)  # known clients only: nothing is fetched for an anonymous user
            raise asked.denied("login_required", "The user is not logged in")
        return guarded(HttpResponseRedirect(login_url(request, _without_login(request))))

    def _again(self, request: HttpRequest) -> HttpResponse:
        """Redirect to a new login, which the client requested.

        The request is validated first, so that users do not log in for an invalid one.
        """
        _read(request)
        return guarded(HttpResponseRedirect(login_url(request, _without_login(request))))


def _read(request: HttpRequest) -> tuple[Asked, list[str]]:
    """Return the request and those of its scopes that the user can grant.

    Raises:
        UntrustedAuthorizationRequest: the client or its redirect URI is invalid.
        AuthorizationDenied: the client is notified of the error.
    """
    try:
        document_clients.look_up(authorization.client_id(request), request.user)
    except document_clients.Unavailable as problem:
        raise Refused("invalid_client", str(problem)) from None
    asked = authorization.read(request)
    scopes = scope_choices.grantable(request.user, asked.application, asked.scopes)
    if not scopes:
        raise asked.denied("invalid_scope", "The user cannot grant any of the requested scopes")
    return asked, scopes


def _is_known(request: HttpRequest, asked: Asked, scopes: Sequence[str]) -> bool:
    if asked.application.skip_authorization and not target_of(asked.redirect_uri).is_local:
        return True  # an operator set this in the toolkit's admin
    return consents.is_remembered(request.user, asked.application, asked.resources, scopes, asked.redirect_uri)


def _ask(request: HttpRequest, asked: Asked, scopes: Sequence[str], *, problem: str = "") -> HttpResponse:
    target = target_of(asked.redirect_uri)
    context = {
        "client": client_of(asked.application),
        "target": target,
        "offers": scope_choices.offers(scopes, ticked=() if problem else None),
        "resources": asked.resources,
        "resource_names": together([resource_name(resource) for resource in asked.resources]),
        "switch_url": address("switch"),
        "problem": problem,
    }
    return page(request, "authorize.html", context, leads_to=_ways(target))


def _ways(target: Target) -> list[str]:
    """Return the sources that the consent form may lead to.

    Browsers apply the policy to all redirects after a form, and pages of clients redirect to other pages of theirs. A
    blocked redirect would leave the user on this page although the code was issued.
    """
    onward = [] if target.kind == "app" else ["https:", *(f"{scheme}:" for scheme in get_settings().native_schemes)]
    return [target.source, *onward]


def _leave(request: HttpRequest, location: str) -> HttpResponse:
    """Redirect the user to the client."""
    try:
        return guarded(OAuth2ResponseRedirect(location, oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES))
    except DisallowedRedirect:
        problem = Refused("invalid_request", "The scheme of the redirect URI is not allowed")
        return _error_page(request, problem)


def _error_page(request: HttpRequest, problem: Refused) -> HttpResponse:
    explanation = _("The application that sent you here is unknown, or its request is invalid.")
    context = {"error": problem.error, "detail": problem.description, "explanation": explanation}
    return page(request, "error.html", context, status=400)


def _without_login(request: HttpRequest) -> str:
    """Return path and query without the `login` prompt, which the login satisfies."""
    query = request.GET.copy()
    wishes = [wish for wish in query.get("prompt", "").split() if wish != "login"]
    query.pop("prompt", None)
    if wishes:
        query["prompt"] = " ".join(wishes)
    return f"{request.path}?{query.urlencode()}"

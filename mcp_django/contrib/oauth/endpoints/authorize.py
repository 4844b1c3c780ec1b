"""Authorization endpoint (`/o/authorize/`): requests the user's consent for a client."""

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import DisallowedRedirect
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views import View
from django.views.decorators.csrf import csrf_protect
from oauth2_provider.http import OAuth2ResponseRedirect

from mcp_django.contrib.oauth.clients import documents
from mcp_django.contrib.oauth.clients.display import (
    build_client_display,
    get_redirect_target,
    get_resource_name,
    join_names,
)
from mcp_django.contrib.oauth.endpoints.pages import get_page_url, redirect_to_login, render_page
from mcp_django.contrib.oauth.flows import authorization, consents
from mcp_django.contrib.oauth.flows.authorization import (
    AuthorizationDenied,
    AuthorizationRequest,
    UntrustedAuthorizationRequest,
)
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.toolkit_compat import oauth2_settings
from mcp_django.extensions.html_pages import add_security_headers

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
        except AuthorizationDenied as problem:
            return _redirect_to_client(request, problem.location)
        except UntrustedAuthorizationRequest as problem:
            return _render_error_page(request, problem)

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the consent page, or redirect if no decision is needed."""
        prompt = PROMPTS & set(request.GET.get("prompt", "").split())
        if not request.user.is_authenticated:
            if "none" in prompt:
                # Known clients only: nothing is fetched for an anonymous user.
                auth_request = authorization.read_authorization_request(request)
                raise auth_request.build_denial("login_required", "The user is not logged in")
            return redirect_to_login(request, _remove_login_prompt(request))

        auth_request, scopes = _read_request(request)
        if prompt == {"login"}:
            return redirect_to_login(request, _remove_login_prompt(request))
        silent = not prompt & {"consent", "select_account", "login"} and _is_preapproved(request, auth_request, scopes)
        if silent:
            return _redirect_to_client(request, authorization.issue_code(request, auth_request, scopes))
        if "none" in prompt:
            raise auth_request.build_denial("consent_required", "The consent of the user is required")
        return _render_consent_page(request, auth_request, scopes)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Process the user's decision."""
        if not request.user.is_authenticated:
            return redirect_to_login(request, request.get_full_path())

        auth_request, scopes = _read_request(request)
        if not request.POST.get("allow"):
            raise auth_request.build_denial("access_denied", "The user denied the request")

        ticked = request.POST.getlist("granted")
        granted = [scope for scope in scopes if scope in ticked]
        if not granted:
            problem = _("Nothing is selected. Select the access that the application may have, or cancel.")
            return _render_consent_page(request, auth_request, scopes, problem=problem)

        # The consent is saved first, so that the user sees the client even if issuing the code fails.
        consents.record_consent(
            request.user, auth_request.application, auth_request.resources, granted, auth_request.redirect_uri
        )
        return _redirect_to_client(request, authorization.issue_code(request, auth_request, granted))


def _read_request(request: HttpRequest) -> tuple[AuthorizationRequest, list[str]]:
    """Return the request and those of its scopes that the user can grant.

    Raises:
        UntrustedAuthorizationRequest: the client or its redirect URI is invalid.
        AuthorizationDenied: the client is notified of the error.
    """
    try:
        documents.refresh_client(authorization.read_client_id(request), request.user)
    except documents.ClientDocumentUnavailable as problem:
        raise UntrustedAuthorizationRequest("invalid_client", str(problem)) from None
    auth_request = authorization.read_authorization_request(request)
    scopes = consents.filter_grantable(request.user, auth_request.application, auth_request.scopes)
    if not scopes:
        raise auth_request.build_denial("invalid_scope", "The user cannot grant any of the requested scopes")
    return auth_request, scopes


def _is_preapproved(request: HttpRequest, auth_request: AuthorizationRequest, scopes: Sequence[str]) -> bool:
    if auth_request.application.skip_authorization and not get_redirect_target(auth_request.redirect_uri).is_local:
        return True  # an operator set this in the toolkit's admin
    return consents.is_remembered(
        request.user, auth_request.application, auth_request.resources, scopes, auth_request.redirect_uri
    )


def _render_consent_page(
    request: HttpRequest, auth_request: AuthorizationRequest, scopes: Sequence[str], *, problem: str = ""
) -> HttpResponse:
    target = get_redirect_target(auth_request.redirect_uri)
    # Browsers apply the policy to all redirects after a form, and pages of clients redirect to other pages of theirs. A
    # blocked redirect would leave the user on this page although the code was issued.
    later_sources = ["https:", *(f"{scheme}:" for scheme in get_settings().native_schemes)]
    form_sources = [target.source, *([] if target.kind == "app" else later_sources)]
    context = {
        "client": build_client_display(auth_request.application),
        "target": target,
        "offers": consents.build_scope_choices(scopes, ticked=() if problem else None),
        "resources": auth_request.resources,
        "resource_names": join_names([get_resource_name(resource) for resource in auth_request.resources]),
        "switch_url": get_page_url("switch"),
        "problem": problem,
    }
    return render_page(request, "authorize.html", context, form_sources=form_sources)


def _redirect_to_client(request: HttpRequest, location: str) -> HttpResponse:
    """Redirect the user to the client."""
    try:
        return add_security_headers(OAuth2ResponseRedirect(location, oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES))
    except DisallowedRedirect:
        problem = UntrustedAuthorizationRequest("invalid_request", "The scheme of the redirect URI is not allowed")
        return _render_error_page(request, problem)


def _render_error_page(request: HttpRequest, problem: UntrustedAuthorizationRequest) -> HttpResponse:
    explanation = _("The application that sent you here is unknown, or its request is invalid.")
    context = {"error": problem.error, "detail": problem.description, "explanation": explanation}
    return render_page(request, "error.html", context, status=400)


def _remove_login_prompt(request: HttpRequest) -> str:
    """Return path and query without the `login` prompt, which the login satisfies."""
    query = request.GET.copy()
    prompts = [wish for wish in query.get("prompt", "").split() if wish != "login"]
    query.pop("prompt", None)
    if prompts:
        query["prompt"] = " ".join(prompts)
    return f"{request.path}?{query.urlencode()}"

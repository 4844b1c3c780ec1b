"""Pages of the authorization server for users.

- `/o/connections/`: users view their connected applications and withdraw access.
- `/o/tokens/`: users create, list and revoke personal tokens.
- `/o/switch/`: users switch the account.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views import View
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_variables

from mcp_django import conf
from mcp_django.auth.authorization.token_scopes import TokenScopes
from mcp_django.contrib.oauth.clients.display import get_server_name, get_site_name, get_user_name
from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.flows.consents import get_connected_apps
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.extensions.html_pages import add_security_headers, build_login_url, render_html
from mcp_django.models import PersonalAccessToken
from mcp_django.models.token import DEFAULT_LIFETIME_DAYS

NAMESPACE = "oauth2_provider"
"""Namespace of the URLs: django-oauth-toolkit reverses its own URLs by it."""
TITLES = {"connections": gettext_lazy("Applications"), "tokens": gettext_lazy("Personal tokens")}
LIFETIME_CHOICES_DAYS = (7, 30, DEFAULT_LIFETIME_DAYS, 365)
"""Selectable lifetimes in days."""
MAX_LIFETIME_DAYS = 3650
"""Maximum lifetime of a token of this page, whatever the settings allow."""
MAX_SHOWN_TOKENS = 100
"""Maximum number of shown tokens: the usable ones first, then the most recent others."""


def render_page(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    status: int = 200,
    form_sources: Iterable[str] = (),
) -> HttpResponse:
    """Render a page.

    `form_sources` are additional Content-Security-Policy sources that forms may lead to.
    """
    defaults = {
        "site_name": get_site_name(),
        "user_name": get_user_name(request.user),
        "here": request.get_full_path(),
        "connections_url": get_page_url("connections"),
    }
    return render_html(
        request, f"mcp_oauth/{template}", {**defaults, **context}, status=status, form_targets=form_sources
    )


def redirect_to_login(request: HttpRequest, return_url: str) -> HttpResponse:
    """Redirect to the login page, which returns to `return_url`."""
    return add_security_headers(HttpResponseRedirect(build_login_url(request, return_url)))


def get_page_url(name: str) -> str:
    """Return the path of a page."""
    return reverse(f"{NAMESPACE}:{name}")


@method_decorator([transaction.non_atomic_requests, login_not_required, csrf_protect], name="dispatch")
class AccountPage(View):
    """Page of the logged-in user. Other users cannot see it."""

    name: ClassVar[str]
    """Name of the page's URL."""
    template: ClassVar[str]
    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not self.is_served():
            raise Http404
        if not request.user.is_authenticated:
            return redirect_to_login(request, request.path)
        return super().dispatch(request, *args, **kwargs)

    def is_served(self) -> bool:
        """Return True if the page is enabled."""
        return True

    @property
    def user(self) -> Any:
        """The logged-in user."""
        return self.request.user

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the page."""
        return self.show()

    def show(self, **context: Any) -> HttpResponse:
        """Render the page with `context`."""
        names = [name for name in TITLES if name != "tokens" or get_settings().personal_tokens]
        pages = [{"title": TITLES[name], "url": get_page_url(name), "is_here": name == self.name} for name in names]
        return render_page(self.request, self.template, {"pages": pages, "here": self.request.path, **context})


@method_decorator([login_not_required, csrf_protect], name="dispatch")
class SwitchAccount(View):
    """Log the user out and let another user log in for an authorization request.

    POST with `next`, the URL of the request. The response is a page instead of a redirect: if the login page is on
    another site, browsers do not follow a redirect after the form of the consent page.
    """

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        """Log out and show a link to the login page."""
        next_url = request.POST.get("next", "")
        return_url = next_url if _is_authorization_url(next_url) else get_page_url("connections")
        logout(request)
        return render_page(request, "signed_out.html", {"login_url": build_login_url(request, return_url)})


def _is_authorization_url(path: str) -> bool:
    """Return True for an authorization request of this server on this host."""
    is_authorize_path = path.partition("?")[0] == get_page_url("authorize")
    return is_authorize_path and url_has_allowed_host_and_scheme(path, allowed_hosts=None)


class Connections(AccountPage):
    """GET lists the applications; POST with `client`, the key of one, ends its access.

    The keys are valid for the current user's applications only.
    """

    name = "connections"
    template = "connections.html"

    def post(self, request: HttpRequest) -> HttpResponse:
        """Withdraw the access of one application."""
        key = request.POST.get("client", "")
        connected_app = next((one for one in get_connected_apps(request.user) if one.pk == key), None)
        if connected_app is None:
            return self.show(done=_("This application has no access."))
        revocation.withdraw_access(request.user, connected_app.application)
        return self.show(done=_("Access of %(name)s was withdrawn.") % {"name": connected_app.client.name})

    def show(self, **context: Any) -> HttpResponse:
        """Render the page with the current applications."""
        return super().show(connections=get_connected_apps(self.request.user), **context)


class PersonalTokenForm(forms.Form):
    """Form of a new token."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("Purpose of the token, such as “CI of the shop”."),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Access"), required=False, widget=forms.CheckboxSelectMultiple()
    )
    audience = forms.ChoiceField(label=gettext_lazy("Server"), required=False)
    days = forms.TypedChoiceField(label=gettext_lazy("Expires"), coerce=int)

    def __init__(self, user: Any, data: Any = None) -> None:
        super().__init__(data, label_suffix="")
        names = [(alias, get_server_name(alias) or alias) for alias in conf.get_settings().servers]
        token_scopes = TokenScopes(user)
        self._set_choices("scopes", list(token_scopes.offered.items()))
        self.fields["scopes"].initial = token_scopes.get_preset()
        if not token_scopes.offered:
            del self.fields["scopes"]

        self._set_choices("audience", [("", _("All servers")), *names])
        if len(names) < 2:
            del self.fields["audience"]

        max_days = min(get_settings().personal_token_days, conf.get_settings().max_token_days or MAX_LIFETIME_DAYS)
        days = sorted({min(days, max_days) for days in (*LIFETIME_CHOICES_DAYS, max_days)})
        texts = [ngettext("in %(days)d day", "in %(days)d days", number) % {"days": number} for number in days]
        self._set_choices("days", list(zip(days, texts, strict=True)))
        self.fields["days"].initial = min(DEFAULT_LIFETIME_DAYS, max_days)

    def _set_choices(self, field: str, choices: list[tuple[Any, Any]]) -> None:
        self.fields[field].choices = choices  # type: ignore[attr-defined]


@method_decorator(sensitive_variables("token"), name="post")
class Tokens(AccountPage):
    """GET lists the user's tokens; POST with `action` "create" or "revoke" changes them.

    A new token is only in the response to the form, because a redirect would have to store it.
    """

    name = "tokens"
    template = "tokens.html"

    def is_served(self) -> bool:
        """Return True if personal tokens are enabled."""
        return get_settings().personal_tokens

    def post(self, request: HttpRequest) -> HttpResponse:
        """Create or revoke a token."""
        if request.POST.get("action") == "revoke":
            return self._revoke(request.POST.get("token", ""))
        form = PersonalTokenForm(request.user, request.POST)
        if not form.is_valid():
            return self.show(form=form)

        data = form.cleaned_data
        row, token = PersonalAccessToken.issue(
            user=request.user,
            name=data["name"],
            scopes=data.get("scopes", ()),
            audience=data.get("audience", ""),
            expires=timezone.now() + timedelta(days=data["days"]),
        )
        return self.show(token=token, made=row, problem=TokenScopes(self.user).find_missing(row.scopes, row.audience))

    def show(self, **context: Any) -> HttpResponse:
        """Render the page with the current tokens."""
        rows = list(PersonalAccessToken.objects.filter(user=self.user)[: 10 * MAX_SHOWN_TOKENS])
        rows.sort(key=lambda row: not row.is_usable)
        token_scopes = TokenScopes(self.user)
        for row in rows:
            row.server = get_server_name(row.audience) or row.audience or _("all")  # type: ignore[attr-defined]
            row.problem = token_scopes.find_missing(row.scopes, row.audience)  # type: ignore[attr-defined]
        return super().show(
            **{"form": PersonalTokenForm(self.request.user), "tokens": rows[:MAX_SHOWN_TOKENS], **context}
        )

    def _revoke(self, key: str) -> HttpResponse:
        rows = PersonalAccessToken.objects.usable().filter(user=self.user)
        row = next((row for row in rows if str(row.pk) == key), None)
        if row is None:
            return self.show(done=_("This token was not valid any more."))
        row.revoke()
        return self.show(done=_("The token “%(name)s” was revoked.") % {"name": row.name})

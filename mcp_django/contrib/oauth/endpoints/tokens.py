"""Page `/o/tokens/`: users create, list and revoke personal tokens."""

from datetime import timedelta
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.debug import sensitive_variables

from mcp_django import conf
from mcp_django.contrib.oauth.clients.display_names import get_server_name
from mcp_django.contrib.oauth.endpoints.account import AccountPage
from mcp_django.contrib.oauth.flows.scope_choices import get_personal_scopes, get_scope_description
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.models import PersonalAccessToken
from mcp_django.models.token import DEFAULT_LIFETIME_DAYS

LIFETIME_CHOICES_DAYS = (7, 30, DEFAULT_LIFETIME_DAYS, 365)
"""Selectable lifetimes in days."""
MAX_SHOWN_TOKENS = 100
"""Maximum number of shown tokens: the usable ones first, then the most recent others."""


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
        scopes = get_personal_scopes(user)
        self._set_choices("scopes", [(scope, get_scope_description(scope)) for scope in scopes])
        if not scopes:
            del self.fields["scopes"]

        self._set_choices("audience", [("", _("All servers")), *names])
        if len(names) < 2:
            del self.fields["audience"]

        max_days = get_settings().personal_token_days
        days = sorted({min(days, max_days) for days in (*LIFETIME_CHOICES_DAYS, max_days)})
        self._set_choices("days", [(number, _format_days(number)) for number in days])
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
        return self.show(token=token, made=row)

    def show(self, **context: Any) -> HttpResponse:
        """Render the page with the current tokens."""
        rows = list(PersonalAccessToken.objects.filter(user=self.user)[: 10 * MAX_SHOWN_TOKENS])
        rows.sort(key=lambda row: not row.is_usable)
        for row in rows:
            row.server = get_server_name(row.audience) or row.audience or _("all")  # type: ignore[attr-defined]
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


def _format_days(days: int) -> str:
    return ngettext("in %(days)d day", "in %(days)d days", days) % {"days": days}

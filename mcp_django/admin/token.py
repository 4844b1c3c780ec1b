"""Admin of personal access tokens: create, list and revoke.

A token is shown once, on the page after its creation.
"""

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django.admin.base import AudienceFilter, OwnedAdmin, RowActionAdmin
from mcp_django.admin.widgets import WordsField
from mcp_django.auth.authorization.token_scopes import TokenScopes
from mcp_django.conf import get_settings
from mcp_django.models import PersonalAccessToken, ServiceAccount
from mcp_django.models.token import check_scopes, get_default_days


class PersonalAccessTokenForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """Form of a new token."""

    scopes = WordsField(
        check=check_scopes,
        required=False,
        label=_("Scopes"),
        help_text=_("Allowed scopes, separated by spaces. The user's permissions apply too."),
    )
    audience = forms.ChoiceField(required=False, label=_("Server"))

    class Meta:
        model = PersonalAccessToken
        fields = ["user", "name", "scopes", "audience", "expires_at"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        audience = self.fields.get("audience")
        if isinstance(audience, forms.ChoiceField):
            audience.choices = [("", _("All servers")), *((alias, alias) for alias in get_settings().servers)]
        token_scopes = TokenScopes()
        if "scopes" in self.fields and token_scopes.declares_all:
            self.fields["scopes"] = _build_scope_choices(token_scopes)

    def clean(self) -> Any:
        cleaned = super().clean()
        user, scopes = self.cleaned_data.get("user"), self.cleaned_data.get("scopes")
        if user is not None and scopes:
            try:
                TokenScopes(user).check(scopes)
            except ValidationError as problem:
                self.add_error("scopes", problem)
        return cleaned

    def clean_expires_at(self) -> Any:
        expires = self.cleaned_data["expires_at"]
        if expires is not None and expires <= timezone.now():
            raise ValidationError(_("The time is in the past: choose a future time."), code="past")
        return expires


def _build_scope_choices(token_scopes: TokenScopes) -> forms.MultipleChoiceField:
    """Build a field with one check box for each scope that a token may hold."""
    texts = {scope: scope if text == scope else f"{scope}: {text}" for scope, text in token_scopes.offered.items()}
    return forms.MultipleChoiceField(
        choices=list(texts.items()),
        required=False,
        label=_("Scopes"),
        help_text=_("Allowed scopes. The user's permissions apply too."),
        widget=forms.CheckboxSelectMultiple(),
    )


class TokenStateFilter(admin.SimpleListFilter):
    """Filter by state: usable, expired or revoked."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("usable", _("usable")), ("expired", _("expired")), ("revoked", _("revoked"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[PersonalAccessToken]) -> QuerySet[PersonalAccessToken]:
        match self.value():
            case "usable":
                return queryset.filter(pk__in=PersonalAccessToken.objects.usable().values("pk"))
            case "expired":
                return queryset.filter(revoked_at=None, expires_at__lte=timezone.now())
            case "revoked":
                return queryset.exclude(revoked_at=None)
        return queryset


@admin.register(PersonalAccessToken)
class PersonalAccessTokenAdmin(RowActionAdmin, OwnedAdmin):
    """Create and revoke tokens.

    Only superusers may create tokens for other persons, because a token acts for its user.
    """

    form = PersonalAccessTokenForm
    list_display = ["name", "state", "user", "last_used_at", "expires_at", "scope_words", "server", "prefix"]
    list_filter = [TokenStateFilter, AudienceFilter, "expires_at", "last_used_at"]
    search_fields = ["name", "prefix", "user"]
    help_texts = {"name": _("Purpose, such as “CI of the shop”.")}
    linked_fields = ["user"]
    actions = ["revoke"]
    action_name = "revoke"
    action_label = _("Revoke token")
    action_question = _("Clients that use the token lose access. This cannot be undone.")

    def is_action_available(self, row: PersonalAccessToken) -> bool:
        return row.revoked_at is None

    def run_action(self, row: PersonalAccessToken) -> str:
        row.revoke()
        return str(_("The token was revoked."))

    def get_fields(self, request: HttpRequest, obj: PersonalAccessToken | None = None) -> Any:
        if obj is None:
            return ["user", "name", "scopes", "audience", "expires_at"]
        return ["user", "name", "prefix", "scope_words", "server", "created", "expires_at", "last_used_at", "state"]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        expires = timezone.now().replace(microsecond=0) + timedelta(days=get_default_days())
        scopes = TokenScopes().get_preset()
        initial: dict[str, Any] = {"user": request.user.pk, "expires_at": expires, "scopes": scopes}
        return initial | super().get_changeform_initial_data(request)

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Show the form with one button, because the page of the new token follows in any case."""
        buttons = {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().add_view(request, form_url, {**(extra_context or {}), **buttons})

    def save_model(self, request: HttpRequest, obj: PersonalAccessToken, form: Any, change: bool) -> None:
        token = obj.generate_token()
        super().save_model(request, obj, form, change)
        request.new_token = token  # type: ignore[attr-defined]  # for `response_add`, and kept nowhere else
        missing = TokenScopes(obj.user).find_missing(obj.scopes, obj.audience)
        if missing is not None:
            self.message_user(request, str(missing), messages.WARNING)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """Show the token in this response.

        A redirect would have to store it in between.
        """
        account = ServiceAccount.objects.filter(user=obj.user_id).first()
        context = self.build_context(
            request,
            title=str(obj),
            token=request.new_token,  # type: ignore[attr-defined]
            list_url=self.get_url("changelist"),
            account=account,
            account_url=account
            and reverse(f"{self.admin_site.name}:mcp_django_serviceaccount_change", args=[account.pk]),
            crumbs=self.build_list_crumbs(),
        )
        response = TemplateResponse(request, "mcp_django/admin/token_created.html", context)
        add_never_cache_headers(response)
        return response

    @admin.display(description=_("scopes"))
    def scope_words(self, token: PersonalAccessToken) -> str:
        """Return the scopes in one line."""
        return " ".join(token.scopes)

    @admin.display(description=_("server"), ordering="audience")
    def server(self, token: PersonalAccessToken) -> str:
        """Return the only server of the token, or "all"."""
        return token.audience or str(_("all"))

    @admin.display(description=_("state"))
    def state(self, token: PersonalAccessToken) -> str:
        """Return the state: usable, expired or revoked."""
        if token.revoked_at is not None:
            return str(_("revoked"))
        return str(_("usable") if token.is_usable else _("expired"))

    @admin.action(description=_("Revoke selected tokens"), permissions=["manage"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[PersonalAccessToken]) -> None:
        """Revoke the tokens. Workers that cache one discard it within TOKEN_CACHE_SECONDS."""
        revoked = [token for token in queryset if token.revoke()]
        for token in revoked:
            self.log_change(request, token, str(_("The token was revoked.")))
        text = ngettext("%d token was revoked.", "%d tokens were revoked.", len(revoked))
        self.report_count(request, text, len(revoked))

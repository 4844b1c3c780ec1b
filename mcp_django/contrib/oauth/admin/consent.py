"""Admin of consents. Operators view and withdraw them; only users give them."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.models import Consent


@admin.register(Consent)
class ConsentAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    """List of consents.

    Withdrawing or deleting one ends all access of the client for the user, as on the user's page.
    """

    list_display = ["user", "application", "resource", "scope_words", "granted", "expires", "state"]
    list_filter = ["granted", "revoked"]
    list_select_related = ["user", "application"]
    date_hierarchy = "granted"
    actions = ["withdraw"]
    readonly_fields = ["user", "application", "resource", "scope_words", "granted", "expires", "revoked", "state"]
    fields = [*readonly_fields]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Consent | None = None) -> bool:
        return False

    def has_withdraw_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may withdraw consents. Called by the action."""
        return super().has_change_permission(request)

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        names = ["application__name", "application__client_id", "resource"]
        return [f"user__{get_user_model().USERNAME_FIELD}", *names]

    def delete_model(self, request: HttpRequest, obj: Consent) -> None:
        revocation.withdraw_access(
            obj.user, obj.application
        )  # without the row, the remaining tokens would be invisible
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Consent]) -> None:
        for consent in queryset:
            revocation.withdraw_access(consent.user, consent.application)
        super().delete_queryset(request, queryset)

    @admin.display(description=_("scopes"))
    def scope_words(self, consent: Consent) -> str:
        """Return the scopes in one line."""
        return " ".join(consent.scopes)

    @admin.display(description=_("state"))
    def state(self, consent: Consent) -> str:
        """Return the state: withdrawn, remembered, or requested again."""
        if consent.revoked is not None:
            return str(_("withdrawn"))
        remembered = consent.expires is not None and consent.expires > timezone.now()
        return str(_("remembered") if remembered else _("expired"))

    @admin.action(description=_("Withdraw selected consents and revoke the tokens"), permissions=["withdraw"])
    def withdraw(self, request: HttpRequest, queryset: QuerySet[Consent]) -> None:
        """End all access of the clients of these consents for their users."""
        pairs: dict[Any, tuple[Any, Any]] = {
            (consent.user_id, consent.application_id): (consent.user, consent.application)
            for consent in queryset.select_related("user", "application").filter(revoked=None)
        }
        for user, application in pairs.values():
            revocation.withdraw_access(user, application)
        count = len(pairs)
        text = ngettext("%d client lost its access.", "%d clients lost their access.", count) % count
        self.message_user(request, text, messages.SUCCESS if count else messages.WARNING)

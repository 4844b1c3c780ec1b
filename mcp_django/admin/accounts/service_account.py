"""Admin of service accounts: list, page, creation, and actions to disable and enable them.

An operator can neither give an account more rights than the operator has, nor manage one that has more.
"""

from datetime import timedelta
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Max, Min, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.timesince import timesince
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django.admin.accounts.account_form import PREFIX, build_account_form, get_rights_fields
from mcp_django.admin.accounts.overview import build_sections, describe_expiry, get_expiry_limit
from mcp_django.admin.accounts.sections import build_added_sections, count_calls
from mcp_django.admin.base import MANAGE_ACCOUNTS_PERMISSION, RowAction, RowActionAdmin, get_admin_url
from mcp_django.auth.authorization.user_rights import has_no_more_rights
from mcp_django.models import PersonalAccessToken, ServiceAccount
from mcp_django.models.service_account import (
    build_ownerless_condition,
    get_user_fields,
    has_active_field,
    save_account,
)

CALL_COUNT_SPAN = timedelta(days=1)
"""Time before now whose calls the list counts."""
DISABLE, ENABLE, REVOKE = "disable", "enable", "revoke"


class AccountStateFilter(admin.SimpleListFilter):
    """Filter by state, and by conditions that an operator has to correct."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        choices = [
            ("ownerless", _("without an owner")),
            ("expiring", _("a token expires soon")),
            ("tokenless", _("without a usable token")),
        ]
        if has_active_field():
            choices[:0] = [("enabled", _("enabled")), ("disabled", _("disabled"))]
        return choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case "enabled" | "disabled" if has_active_field():
                return queryset.filter(user__is_active=self.value() == "enabled")
            case "ownerless":
                return queryset.filter(build_ownerless_condition())
            case "expiring":
                return queryset.filter(next_expiry__lt=get_expiry_limit())
            case "tokenless":
                return queryset.filter(usable_tokens=None)
        return queryset


class ServiceAccountList(ChangeList):
    """List that counts the calls of all accounts of a page at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        keys = [str(account.user_id) for account in self.result_list]
        counts = count_calls(keys, timezone.now() - CALL_COUNT_SPAN) or {}
        for account in self.result_list:
            account.call_count = counts.get(str(account.user_id), 0)


@admin.register(ServiceAccount)
class ServiceAccountAdmin(RowActionAdmin):
    """Create, show, change, disable and delete service accounts.

    To disable an account and to revoke its tokens takes the change permission only, because it takes rights away. All
    other acts need an operator who has all rights of the account.
    """

    list_display = ["username", "state", "owner_name", "tokens", "last_used", "calls"]
    list_display_links = ["username"]
    list_filter = [AccountStateFilter, "created"]
    list_select_related = ["user", "owner"]
    search_fields = ["user", "description"]
    raw_id_fields = ["owner"]
    readonly_fields = ["username", "state", "created"]
    help_texts = {
        "owner": _("Person who is responsible for the account. Without an owner it gets no new tokens."),
        "description": _("The program that uses the account, and the place where it runs."),
    }
    actions = ["disable_accounts"]
    change_form_template = "mcp_django/admin/service_account_change_form.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[ServiceAccount]:
        tokens = PersonalAccessToken.objects.filter(user=OuterRef("user")).order_by().values("user")
        usable = PersonalAccessToken.objects.usable().filter(user=OuterRef("user")).order_by().values("user")
        accounts: QuerySet[Any] = super().get_queryset(request)
        annotated: QuerySet[ServiceAccount] = accounts.annotate(
            usable_tokens=Subquery(usable.annotate(value=Count("pk")).values("value")),
            next_expiry=Subquery(usable.annotate(value=Min("expires_at")).values("value")),
            last_use=Subquery(tokens.annotate(value=Max("last_used_at")).values("value")),
        )
        return annotated

    def get_list_display(self, request: HttpRequest) -> Any:
        counts_calls = count_calls((), timezone.now()) is not None
        return [name for name in self.list_display if name != "calls" or counts_calls]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ServiceAccountList

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> Any:
        """Return the actions on several rows, or for a location, which Django 6.1 passes.

        Accounts are deleted one by one, because each has rights of its own.
        """
        options = {} if action_location is None else {"action_location": action_location}
        actions = super().get_actions(request, **options)
        actions.pop("delete_selected", None)
        if not has_active_field():
            actions.pop("disable_accounts", None)
        return actions

    def get_fieldsets(self, request: HttpRequest, obj: ServiceAccount | None = None) -> Any:
        """Return the fields.

        The boxes of rights are folded on the page of an account, because its sections follow them.
        """
        names = [f"{PREFIX}{name}" for name in get_user_fields()] if obj is None else ["username", "state"]
        fields = [*names, "owner", "description", *(["created"] if obj is not None else [])]
        rights = {"fields": get_rights_fields(), "classes": ["collapse"] if obj is not None else []}
        return [(None, {"fields": fields}), *([(_("Rights"), rights)] if rights["fields"] else [])]

    def get_readonly_fields(self, request: HttpRequest, obj: ServiceAccount | None = None) -> Any:
        """Return the fields without an input.

        A reader who may not change the account gets texts instead of boxes.
        """
        may_change = obj is None or self.has_change_permission(request, obj)
        return self.readonly_fields if may_change else [*self.readonly_fields, *get_rights_fields()]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        return super().get_form(request, obj, change, form=build_account_form(request.user, obj), **kwargs)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"owner": request.user.pk, **super().get_changeform_initial_data(request)}

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and self._may_manage(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and self._may_manage(request, obj)

    def _may_manage(self, request: HttpRequest, account: ServiceAccount | None) -> bool:
        """Return True if an account has no more rights than the operator.

        The result is cached for the request.
        """
        if account is None:
            return True
        answers: dict[Any, bool] = request.__dict__.setdefault("manageable_accounts", {})
        if account.pk not in answers:
            answers[account.pk] = has_no_more_rights(account.user, request.user)
        return answers[account.pk]

    def save_model(self, request: HttpRequest, obj: ServiceAccount, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
        else:
            save_account(obj, form.user)
        form.save_rights(obj.user)
        # The form offers no further rights, but a required field of the user model may give some, such as a role.
        if not has_no_more_rights(obj.user, request.user):
            raise PermissionDenied(_("The account would have rights that you lack."))

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Return the rows that the deletion removes, those of the user included.

        Rows of this package are part of the account. Others need the permission to delete them.
        """
        users = [account.user for account in objs]
        deleted, counts, missing, protected = super().get_deleted_objects(users, request)
        own = {
            str(model._meta.verbose_name)
            for model in apps.get_models()
            if admin.site.is_registered(model)
            and (model is get_user_model() or model.__module__.startswith("mcp_django."))
        }
        return deleted, counts, set(missing) - own, protected

    def get_row_actions(self) -> list[RowAction]:
        can_disable = has_active_field()
        return [
            RowAction(
                DISABLE,
                _("Disable"),
                _("All tokens of the account are refused until it is enabled again. Its open streams end."),
                lambda account: can_disable and account.user.is_active,
                lambda account, operator: self._set_active(account, False),
            ),
            RowAction(
                ENABLE,
                _("Enable"),
                _("The tokens of the account that are neither expired nor revoked are accepted again."),
                lambda account: can_disable and not account.user.is_active,
                lambda account, operator: self._set_active(account, True),
            ),
            RowAction(
                REVOKE,
                _("Revoke all tokens"),
                _("Programs that use the tokens lose access. This cannot be undone."),
                lambda account: PersonalAccessToken.objects.filter(user=account.user_id, revoked_at=None).exists(),
                lambda account, operator: _revoke_all(account),
            ),
        ]

    def has_action_permission(self, request: HttpRequest, row: Any, action: RowAction) -> bool:
        if not self.has_manage_permission(request):
            return False
        return action.name in (DISABLE, REVOKE) or self._may_manage(request, row)

    def _set_active(self, account: ServiceAccount, is_active: bool) -> str:
        account.user.is_active = is_active
        account.user.save(update_fields=["is_active"])
        return str(_("The account was enabled.") if is_active else _("The account was disabled."))

    @admin.action(description=_("Disable selected accounts"), permissions=["manage"])
    def disable_accounts(self, request: HttpRequest, queryset: QuerySet[ServiceAccount]) -> None:
        """Disable the accounts, so that all of their tokens are refused."""
        changed = [account for account in queryset if account.user.is_active]
        for account in changed:
            self.log_change(request, account, self._set_active(account, False))
        text = ngettext("%d account was disabled.", "%d accounts were disabled.", len(changed))
        self.report_count(request, text, len(changed))

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        account = kwargs.get("obj")
        if account is not None:
            request.current_app = self.admin_site.name
            context["sections"] = [*build_sections(request, account), *build_added_sections(request, account.user)]
            if self._may_add_token(request, account):
                url = get_admin_url(request, "mcp_django_personalaccesstoken_add")
                context["new_token_url"] = f"{url}?user={account.user_id}"
            context["warnings"] = list(self.get_warnings(account))
        return super().render_change_form(request, context, *args, **kwargs)

    def _may_add_token(self, request: HttpRequest, account: ServiceAccount) -> bool:
        return (
            account.has_owner
            and account.user.is_active
            and request.user.has_perm("mcp_django.add_personalaccesstoken")
            and request.user.has_perm(MANAGE_ACCOUNTS_PERMISSION)
            and self._may_manage(request, account)
        )

    def get_warnings(self, row: ServiceAccount) -> Any:
        """Yield conditions that an operator should correct."""
        if not row.has_owner:
            yield _("The account has no active owner. Its tokens work until they expire, and it gets no new ones.")
        if row.can_log_in:
            yield _("The user has a password or is staff. Logins are refused; remove both in the admin of users.")

    @admin.display(description=_("name"), ordering=f"user__{get_user_model().USERNAME_FIELD}")
    def username(self, account: ServiceAccount) -> str:
        """Return the name of the user."""
        return str(account.user.get_username())

    @admin.display(description=_("state"))
    def state(self, account: ServiceAccount) -> str:
        """Return the state, enabled or disabled, with a mark if the user can log in."""
        state = str(_("enabled") if account.user.is_active else _("disabled"))
        return format_html("{} ⚠", state) if account.can_log_in else state

    @admin.display(description=_("owner"), ordering=f"owner__{get_user_model().USERNAME_FIELD}")
    def owner_name(self, account: ServiceAccount) -> str:
        """Return the name of the owner, with a mark if there is no active one."""
        if account.owner is None:
            return format_html('<span class="mcp-warning">{}</span>', _("without an owner"))
        if not account.has_owner:
            return format_html('<span class="mcp-warning">{}</span>', _("%s (inactive)") % account.owner)
        return str(account.owner)

    @admin.display(description=_("usable tokens"), ordering="next_expiry")
    def tokens(self, account: Any) -> str:
        """Return the number of usable tokens, and the time until the next one expires."""
        count = account.usable_tokens or 0
        if not count or account.next_expiry is None:
            return str(count)
        is_close = account.next_expiry < get_expiry_limit()
        text = _("%(count)d, the next expires %(time)s") % {
            "count": count,
            "time": describe_expiry(account.next_expiry),
        }
        return format_html('<span class="mcp-warning">{}</span>', text) if is_close else str(text)

    @admin.display(description=_("last used"), ordering="last_use")
    def last_used(self, account: Any) -> str:
        """Return the time since a token of the account was used."""
        return str(_("never") if account.last_use is None else _("%s ago") % timesince(account.last_use, depth=1))

    @admin.display(description=_("calls in a day"))
    def calls(self, account: Any) -> int:
        """Return the number of calls in the last day, counted by the hour."""
        count: int = account.call_count
        return count


def _revoke_all(account: ServiceAccount) -> str:
    revoked = sum(token.revoke() for token in PersonalAccessToken.objects.filter(user=account.user_id))
    return ngettext("%d token was revoked.", "%d tokens were revoked.", revoked) % revoked

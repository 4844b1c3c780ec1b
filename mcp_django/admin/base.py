"""Base class of the admin pages: rights, search by user, links, page contexts and reports."""

from collections.abc import Iterator
from typing import Any

import django
from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from mcp_django import wiring
from mcp_django.conf import get_settings


class BaseAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    """Admin with switches for rights that nobody has.

    In `search_fields`, "user" stands for the name of the user.
    """

    can_add = True
    can_change = True
    can_delete = True

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.can_add and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.can_change and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.can_delete and super().has_delete_permission(request, obj)

    def has_manage_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may run actions on rows that cannot be edited."""
        return super().has_change_permission(request)

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        username = f"user__{get_user_model().USERNAME_FIELD}"
        return [username if name == "user" else name for name in self.search_fields]

    def get_url(self, name: str, *args: Any) -> str:
        """Return the URL of one of the model's pages."""
        return reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_{name}", args=args)

    def build_context(self, request: HttpRequest, **context: Any) -> dict[str, Any]:
        """Return the context of a page with the common parts of the site."""
        request.current_app = self.admin_site.name
        is_list = django.VERSION >= (6,)
        return {**self.admin_site.each_context(request), "opts": self.opts, "crumbs_are_a_list": is_list, **context}

    def report_count(self, request: HttpRequest, text: str, count: int) -> None:
        """Show how many rows an action has changed."""
        self.message_user(request, text % count, messages.SUCCESS if count else messages.WARNING)

    def get_warnings(self, row: Any) -> Iterator[str]:
        """Yield warnings for the user who saved the row."""
        yield from ()

    def show_warnings(self, request: HttpRequest, row: Any) -> None:
        """Show the warnings about a saved row."""
        for warning in self.get_warnings(row):
            self.message_user(request, warning, messages.WARNING)


class OwnedAdmin(BaseAdmin):
    """Admin of rows that act for a user. Only superusers may create them for other users."""

    can_change = False
    list_select_related = ["user"]
    raw_id_fields = ["user"]

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        maker: Any = request.user
        if db_field.name == "user" and not maker.is_superuser:
            kwargs["queryset"] = get_user_model()._default_manager.filter(pk=maker.pk)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


def build_server_choices(current: str) -> list[tuple[str, Any]]:
    """Return the choices of a server: all servers, each alias, and an unknown current one."""
    unknown = [current] if current and current not in get_settings().servers else []
    return [("", _("All servers")), *((alias, alias) for alias in (*wiring.list_aliases(), *unknown))]

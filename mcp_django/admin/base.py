"""Base classes of the admin pages: rights, search, links, filters, actions on a row."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import django
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import get_fields_from_path, quote, unquote
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from mcp_django import wiring
from mcp_django.auth.authorization.user_rights import has_no_more_rights
from mcp_django.conf import get_settings
from mcp_django.html_pages import clean_views
from mcp_django.models import ServiceAccount
from mcp_django.protocol.display_text import clean_line

MANAGE_ACCOUNTS_PERMISSION = "mcp_django.change_serviceaccount"
"""Permission to manage service accounts that have no more rights."""
LINKED_LOOKUPS = frozenset({"exact", "gt", "gte", "in", "isnull", "lt", "lte", "year", "month", "day"})
"""Lookups of Django's filters, and of the package's links. None matches a part of a text."""


class LinkedLookups:
    """Mixin for a ModelAdmin whose list filters by no more than the links of pages do.

    Django's list filters by each column of the model that the URL names, shown or not, by any lookup. Users who see the
    list could thus read columns that it hides, one letter after the other.
    """

    linked_fields: Sequence[str] = ()
    """Fields by which links of other pages filter, beside those of `list_filter` and `date_hierarchy`."""

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Return True for filters of the list, and for their fields with a lookup of links."""
        model_admin: Any = self
        names: set[str] = {model_admin.date_hierarchy, *self.linked_fields} - {None}
        for item in model_admin.list_filter if request is None else model_admin.get_list_filter(request):
            if isinstance(item, type) and issubclass(item, admin.SimpleListFilter):
                if lookup == item.parameter_name:
                    return True
            else:
                names.add(item if isinstance(item, str) else item[0])
        path, _separator, last = lookup.rpartition(LOOKUP_SEP)
        field_path = path if last in LINKED_LOOKUPS else lookup
        return any(field_path in (name, _find_key_path(model_admin.model, name)) for name in names)


def _find_key_path(model: Any, name: str) -> str:
    """Return the name of a field, or for a relation the path of its key, by which Django filters."""
    field: Any = get_fields_from_path(model, name)[-1]
    return f"{name}{LOOKUP_SEP}{field.target_field.name}" if field.is_relation else name


class BaseAdmin(LinkedLookups, admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    """ModelAdmin whose rights to add, change and delete can be switched off.

    In `search_fields`, "user" means the name of the user.
    """

    class Media:
        css = {"all": ["mcp_django/admin.css"]}

    @property
    def urls(self) -> list[Any]:
        """URL patterns of the pages, which have no invisible characters."""
        return clean_views(super().urls)

    can_add = True
    can_change = True
    can_delete = True
    help_texts: Mapping[str, Any] = {}
    """Help texts of the model's fields by name, marked for lazy translation.

    The fields of the package's models have none, because a new wording there would need a migration.
    """

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        kwargs.setdefault("help_texts", self.help_texts or None)
        return super().get_form(request, obj, change, **kwargs)

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

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        return super().log_addition(request, _NamedRow(obj), message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        return super().log_change(request, _NamedRow(obj), message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        rows: Any = list(map(_NamedRow, queryset))
        return super().log_deletions(request, rows)

    def build_context(self, request: HttpRequest, **context: Any) -> dict[str, Any]:
        """Return the context of a page with the common parts of the site."""
        request.current_app = self.admin_site.name
        is_list = django.VERSION >= (6,)
        return {**self.admin_site.each_context(request), "opts": self.opts, "crumbs_are_a_list": is_list, **context}

    def report_count(self, request: HttpRequest, text: str, count: int) -> None:
        """Show how many rows an action has changed."""
        self.message_user(request, text % count, messages.SUCCESS if count else messages.WARNING)

    def list_figures(self) -> "Sequence[tuple[Any, Any]]":
        """Return labels and values about all rows, for overviews. Most models have none."""
        return ()

    def get_warnings(self, row: Any) -> Iterator[str]:
        """Yield warnings for the user who saved the row."""
        yield from ()

    def show_warnings(self, request: HttpRequest, row: Any) -> None:
        """Show the warnings about a saved row."""
        for warning in self.get_warnings(row):
            self.message_user(request, warning, messages.WARNING)


class _NamedRow:
    """Row with a name of visible characters, for the log of the admin, which other pages show."""

    def __init__(self, row: Any) -> None:
        self._row = row

    def __getattr__(self, name: str) -> Any:
        return getattr(self._row, name)

    def __str__(self) -> str:
        return clean_line(str(self._row))


def get_admin_url(request: HttpRequest, name: str, *args: Any) -> str:
    """Return the URL of a page of the admin site that serves a request."""
    return reverse(f"admin:{name}", args=args, current_app=getattr(request, "current_app", None))


def log_act(request: HttpRequest, model: type[Any], subject: str, act: str) -> None:
    """Note an act of a user on a page in the admin's log. `model` is that of the page."""
    LogEntry.objects.create(
        user_id=request.user.pk or 0,
        content_type=ContentType.objects.get_for_model(model, for_concrete_model=False),
        object_repr=subject[:200],
        action_flag=CHANGE,
        change_message=act,
    )


class OperatedUserField(forms.ModelChoiceField):  # type: ignore[type-arg]  # not generic at run time
    """Choice of a user for whom an operator may create credentials.

    Allowed are the operator, and service accounts without more rights.
    """

    def __init__(self, *args: Any, operator: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.operator = operator

    def to_python(self, value: Any) -> Any:
        user = super().to_python(value)
        if user is not None and user.pk != self.operator.pk and not has_no_more_rights(user, self.operator):
            message = _("%(user)s has rights that you lack: ask an operator who has them.")
            raise forms.ValidationError(message, code="rights", params={"user": user})
        return user


class OwnedAdmin(BaseAdmin):
    """Admin of rows that act for a user.

    Superusers may create them for all users, and others for themselves, and for service accounts without more rights.
    """

    can_change = False
    list_select_related = ["user"]
    raw_id_fields = ["user"]

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        operator: Any = request.user
        if db_field.name == "user" and not operator.is_superuser:
            users = Q(pk=operator.pk)
            if operator.has_perm(MANAGE_ACCOUNTS_PERMISSION):
                users |= Q(pk__in=ServiceAccount.objects.values("user"))
            kwargs["queryset"] = get_user_model()._default_manager.filter(users)
            kwargs |= {"form_class": OperatedUserField, "operator": operator}
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


@dataclass(frozen=True, slots=True)
class RowAction:
    """An action on one row, which a page confirms."""

    name: str
    """Name of the action in URLs."""
    label: Any
    question: Any
    is_available: Callable[[Any], bool]
    """Function that returns True if the action would change the row."""
    run: Callable[[Any, Any], str]
    """Function of the row and the operator that runs the action and returns a report for the operator."""


class RowActionAdmin(BaseAdmin):
    """Admin with an action on the page of a row, which a second page confirms.

    The action requires the same permission as actions on several rows.
    """

    action_name = ""
    """Name of the action in URLs."""
    action_label: Any = ""
    action_question: Any = ""
    change_form_template = "mcp_django/admin/row_action_change_form.html"

    def is_action_available(self, row: Any) -> bool:
        """Return True if the action would change the row."""
        raise NotImplementedError

    def run_action(self, row: Any) -> str:
        """Run the action; return a report for the user."""
        raise NotImplementedError

    def get_row_actions(self) -> list[RowAction]:
        """Return the actions that the page of a row offers; the one of the attributes by default."""
        return [
            RowAction(
                self.action_name,
                self.action_label,
                self.action_question,
                self.is_action_available,
                lambda row, operator: self.run_action(row),
            )
        ]

    def has_action_permission(self, request: HttpRequest, row: Any, action: RowAction) -> bool:
        """Return True if the user may run an action on a row."""
        return self.has_manage_permission(request)

    def get_urls(self) -> list[URLPattern]:
        prefix = f"{self.opts.app_label}_{self.opts.model_name}"
        patterns = [
            path(
                f"<path:object_id>/{action.name}/",
                self.admin_site.admin_view(functools.partial(self.action_view, action=action)),
                name=f"{prefix}_{action.name}",
            )
            for action in self.get_row_actions()
        ]
        return [*patterns, *super().get_urls()]

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        row = kwargs.get("obj")
        if row is not None:
            context["row_actions"] = [
                {"url": self.get_url(action.name, quote(row.pk)), "label": action.label}
                for action in self.get_row_actions()
                if action.is_available(row) and self.has_action_permission(request, row, action)
            ]
        return super().render_change_form(request, context, *args, **kwargs)

    def action_view(self, request: HttpRequest, object_id: str, *, action: RowAction) -> HttpResponseBase:
        """Ask for confirmation; on POST run the action."""
        if not self.has_manage_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            raise Http404
        if not self.has_action_permission(request, row, action):
            raise PermissionDenied
        page_url = self.get_url("change", quote(row.pk))

        if request.method == "POST":
            report = action.run(row, request.user)
            self.log_change(request, row, report)
            self.message_user(request, report, messages.SUCCESS)
            return HttpResponseRedirect(page_url)
        context = self.build_context(
            request,
            title=action.label,
            question=action.question,
            row=row,
            page_url=page_url,
            crumbs=[*self.build_list_crumbs(), (page_url, str(row))],
        )
        return TemplateResponse(request, "mcp_django/admin/row_action.html", context)

    def build_list_crumbs(self) -> list[tuple[str, Any]]:
        """Return the URLs and names of the pages above a row."""
        return [
            (reverse(f"{self.admin_site.name}:index"), _("Home")),
            (self.get_url("changelist"), capfirst(str(self.opts.verbose_name_plural))),
        ]


class ServerFilter(admin.SimpleListFilter):
    """Filter by server. Rows without a server are for all servers."""

    title = _("server")
    parameter_name = "server"
    ALL_SERVERS = "*"
    """Value for rows without a server, which no alias can have."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        aliases = model_admin.get_queryset(request).order_by().values_list(self.parameter_name, flat=True).distinct()
        choices = [(alias or self.ALL_SERVERS, alias or _("all servers")) for alias in sorted(aliases)]
        return choices if len(choices) > 1 else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        return queryset.filter(**{self.parameter_name: "" if value == self.ALL_SERVERS else value})


class AudienceFilter(ServerFilter):
    """Filter by the server of a token."""

    parameter_name = "audience"


def build_server_choices(current: str) -> list[tuple[str, Any]]:
    """Return the choices of a server: all servers, each alias, and an unknown current one."""
    unknown = [current] if current and current not in get_settings().servers else []
    return [("", _("All servers")), *((alias, alias) for alias in (*wiring.list_aliases(), *unknown))]

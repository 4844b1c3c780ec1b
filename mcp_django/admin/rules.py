"""Admin of the rules: tool policies and scope grants. Changes are logged and apply at once."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import Group
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.translation import gettext_lazy as _

from mcp_django import wiring
from mcp_django.admin.base import BaseAdmin, ServerFilter, build_server_choices
from mcp_django.admin.widgets import (
    BoxesInput,
    LinesField,
    SuggestingInput,
    UsersField,
    build_scope_choices,
    get_user_names,
)
from mcp_django.conf import get_settings
from mcp_django.models import ScopeGrant, ToolPolicy
from mcp_django.models.rules import check_names

_NO_GROUP = _("%s (unknown group)")
MAX_SHOWN_TOOLS = 5
"""Maximum number of matching tools that a list names."""


def _get_tool_names(server: str = "") -> list[str]:
    """Return the names of the tools registered by code, on one server or on all."""
    if server:
        aliases = [server] if server in get_settings().servers else []
    else:
        aliases = list(wiring.list_aliases())
    return sorted({tool.name for alias in aliases for tool in wiring.get_server(alias).registry.tools})


def _get_group_choices(selected: Iterable[str]) -> list[tuple[str, str]]:
    existing = {name: name for name in Group.objects.order_by("name").values_list("name", flat=True)}
    missing = {name: str(_NO_GROUP % name) for name in selected if name not in existing}
    return [*existing.items(), *missing.items()]


class RuleForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """Form fields common to both kinds of rules."""

    groups = forms.MultipleChoiceField(required=False, label=_("Groups"))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, text in (self._meta.help_texts or {}).items():
            if name in self.fields:
                self.fields[name].help_text = text
        if "groups" in self.fields:
            self._set_choices("groups", _get_group_choices(self.instance.groups), BoxesInput(_("groups"), False))

    def _set_choices(self, name: str, choices: list[tuple[str, Any]], widget: Any = None) -> None:
        field: Any = self.fields[name]
        if widget is not None:
            widget.is_required = field.required
            field.widget = widget
        field.choices = choices


class ToolPolicyForm(RuleForm):
    """Form of a tool policy."""

    server = forms.ChoiceField(required=False, label=_("Server"))
    scopes = forms.MultipleChoiceField(required=False, label=_("Scopes"), widget=forms.CheckboxSelectMultiple)

    class Meta:
        model = ToolPolicy
        fields = ["tool", "server", "disabled", "scopes", "groups", "rate", "note"]
        widgets = {"tool": SuggestingInput(_get_tool_names)}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "server" in self.fields:
            self._set_choices("server", build_server_choices(self.instance.server))
        if "scopes" in self.fields:
            self._set_choices("scopes", build_scope_choices(self.instance.scopes))
            if not get_settings().scopes:
                self.fields["scopes"].help_text = _("MCP[“SCOPES”] is empty.")


class ScopeGrantForm(RuleForm):
    """Form of a scope grant."""

    scope = forms.ChoiceField(label=_("Scope"))
    users = UsersField(required=False, label=_("Users"))
    clients = LinesField(required=False, label=_("Clients"), validators=[check_names])

    class Meta:
        model = ScopeGrant
        fields = ["scope", "groups", "users", "clients", "tokens", "note"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "scope" in self.fields:
            current = self.instance.scope
            taken = set(ScopeGrant.objects.exclude(pk=self.instance.pk).values_list("scope", flat=True))
            self._set_choices(
                "scope", [one for one in build_scope_choices([current] if current else []) if one[0] not in taken]
            )


class RuleAdmin(BaseAdmin):
    """Admin that shows warnings after each save."""

    help_texts = {"note": _("Reason, for other operators. Clients never see it.")}

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        self.show_warnings(request, obj)

    def get_warnings(self, row: Any) -> Iterator[str]:
        missing = self._find_missing_groups(row)
        if missing:
            yield str(_("Unknown group %s: no user is a member.") % ", ".join(missing))

    def _find_missing_groups(self, row: Any) -> list[str]:
        existing = (
            set(Group.objects.filter(name__in=row.groups).values_list("name", flat=True)) if row.groups else set()
        )
        return [name for name in row.groups if name not in existing]

    @admin.display(description=_("groups"))
    def group_names(self, row: Any) -> str:
        """Return the groups of a rule, with unknown groups marked."""
        missing = self._find_missing_groups(row)
        return ", ".join(str(_NO_GROUP % name) if name in missing else name for name in row.groups)


@admin.register(ToolPolicy)
class ToolPolicyAdmin(RuleAdmin):
    """Admin of the policies that disable tools, add requirements, or limit rates."""

    form = ToolPolicyForm
    list_display = ["tool", "server_name", "effect", "fits", "note"]
    list_filter = ["disabled", ServerFilter]
    search_fields = ["tool", "note"]
    help_texts = {
        **RuleAdmin.help_texts,
        "server": _("Alias of the only server that it applies to."),
        "tool": _(
            "Name of a tool, or a pattern: * matches any letters, ? matches one. Every policy that "
            "matches a tool applies."
        ),
        "disabled": _("The tool is hidden from all callers, superusers included."),
        "scopes": _("Scopes that the caller's client must hold besides those of the tool itself."),
        "groups": _(
            "The caller must be in one of these groups, superusers included. For others the tool does"
            " not exist. Select a renamed group again."
        ),
        "rate": _("Maximum calls of each tool by each caller, such as “10/m”. The lowest rate applies."),
    }

    def get_warnings(self, row: ToolPolicy) -> Iterator[str]:
        yield from super().get_warnings(row)
        if not self._find_matching_tools(row):
            yield str(_("No registered tool matches this name. Tools of providers may match."))

    def find_policies(self, server: str, tool: str) -> list[ToolPolicy]:
        """Return the policies that apply to a tool of a server."""
        rows = ToolPolicy.objects.filter(server__in=("", server))
        return [row for row in rows if fnmatchcase(tool, row.tool)]

    def _find_matching_tools(self, row: ToolPolicy) -> list[str]:
        return [name for name in _get_tool_names(row.server) if fnmatchcase(name, row.tool)]

    @admin.display(description=_("server"), ordering="server")
    def server_name(self, row: ToolPolicy) -> str:
        """Return the only server of the policy, or "all"."""
        return row.server or str(_("all"))

    @admin.display(description=_("effect"))
    def effect(self, row: ToolPolicy) -> str:
        """Return the requirements of the policy or that it disables, one per line."""
        effects = (
            (_("disabled"), row.disabled),
            (_("scopes: %s") % " ".join(row.scopes), row.scopes),
            (_("groups: %s") % self.group_names(row), row.groups),
            (_("rate: %s") % row.rate, row.rate),
        )
        return format_html_join("", "<div>{}</div>", ((text,) for text, is_set in effects if is_set))

    @admin.display(description=_("matching tools"))
    def fits(self, row: ToolPolicy) -> str:
        """Return the first matching tools."""
        tools = self._find_matching_tools(row)
        return ", ".join(tools[:MAX_SHOWN_TOOLS]) + (" …" if len(tools) > MAX_SHOWN_TOOLS else "")


@admin.register(ScopeGrant)
class ScopeGrantAdmin(RuleAdmin):
    """Admin of the grants that restrict the holders of a scope."""

    form = ScopeGrantForm
    list_display = ["scope", "description", "group_names", "user_names", "client_names", "tokens", "note"]
    search_fields = ["scope", "note"]
    help_texts = {
        **RuleAdmin.help_texts,
        "scope": _("One of the scopes that MCP[“SCOPES”] declares."),
        "groups": _(
            "Only users in one of these groups may hold it, superusers included. Empty: users of all "
            "groups. Select a renamed group again."
        ),
        "users": _("These users may hold it, too. Without groups, only they may."),
        "clients": _("Only clients with these identifiers may hold it, one per line; * matches any text. Empty: all."),
        "tokens": _("Personal access tokens may hold it."),
    }

    @admin.display(description=_("description"))
    def description(self, row: ScopeGrant) -> str:
        """Return the description from MCP["SCOPES"]."""
        return str(get_settings().scopes.get(row.scope, _("not declared")))

    @admin.display(description=_("users"))
    def user_names(self, row: ScopeGrant) -> str:
        """Return the names of the users in one line, with deleted users marked."""
        return ", ".join(get_user_names(row.users))

    @admin.display(description=_("clients"))
    def client_names(self, row: ScopeGrant) -> str:
        """Return the client identifiers in one line."""
        return ", ".join(row.clients)

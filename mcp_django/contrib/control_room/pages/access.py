"""Access of callers: who may use which tool, and the reasons.

The verdicts are those of lists and calls: `mcp_inspect` and this page share the code.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import async_to_sync
from django import forms
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mcp_django import wiring
from mcp_django.auth.authentication.verifiers import build_token_principal
from mcp_django.auth.authorization.scopes import PrincipalRefused
from mcp_django.auth.principal import ALL_SCOPES, PROJECT_ISSUER, DjangoPrincipal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.conf import get_settings
from mcp_django.management.inspection import ALLOWED, InspectedPrimitive, inspect_server
from mcp_django.models import PersonalAccessToken
from mcp_django.wiring.authorization import create_scope_filter

ACCESS_PERMISSION = "mcp_control_room.view_access"
MAX_COLUMNS = 8
MAX_REVERSE_CALLERS = 100
KIND_LABELS = {
    "tool": gettext_lazy("tool"),
    "resource": gettext_lazy("resource"),
    "template": gettext_lazy("resource template"),
    "prompt": gettext_lazy("prompt"),
}


class AccessForm(forms.Form):
    """Choice of the callers to compare, or of one tool."""

    server = forms.ChoiceField(label=gettext_lazy("Server"))
    users = forms.CharField(
        label=gettext_lazy("Users"), required=False, help_text=gettext_lazy("User names, separated by commas.")
    )
    group = forms.ModelChoiceField(
        Group.objects.order_by("name"),
        label=gettext_lazy("Members of the group"),
        required=False,
    )
    token = forms.ModelMultipleChoiceField(
        PersonalAccessToken.objects.none(), label=gettext_lazy("Personal access tokens"), required=False
    )
    client = forms.CharField(
        label=gettext_lazy("Client"),
        required=False,
        help_text=gettext_lazy("Identifier of a client that the users act through."),
    )
    scopes = forms.CharField(
        label=gettext_lazy("Scopes"),
        required=False,
        help_text=gettext_lazy("Scopes that the users delegate to the client, separated by spaces."),
    )
    tool = forms.CharField(
        label=gettext_lazy("Only this name"),
        required=False,
        help_text=gettext_lazy("Without users, group and tokens: all users are compared."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["server"].choices = [(alias, alias) for alias in wiring.list_aliases()]  # type: ignore[attr-defined]  # a ChoiceField
        tokens = PersonalAccessToken.objects.usable().select_related("user")
        self.fields["token"].queryset = tokens  # type: ignore[attr-defined]  # a ModelChoiceField

    def clean_users(self) -> list[Any]:
        """Return the users of the names."""
        names = [name.strip() for name in self.cleaned_data["users"].split(",") if name.strip()]
        model = get_user_model()
        found = model._default_manager.filter(**{f"{model.USERNAME_FIELD}__in": names})
        by_name = {user.get_username(): user for user in found}
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise forms.ValidationError(_("Unknown users: %s") % ", ".join(unknown))
        return [by_name[name] for name in dict.fromkeys(names)]

    def clean_scopes(self) -> frozenset[str]:
        """Return the scopes as a set."""
        return frozenset(self.cleaned_data["scopes"].split())


@dataclass(slots=True)
class AccessColumn:
    """Caller with its verdicts."""

    label: str
    principal: DjangoPrincipal | None
    """Principal with the scopes that it holds; None if it is refused."""
    refusal: Any = ""
    verdicts: dict[tuple[str, str], InspectedPrimitive] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AccessCell:
    """Verdict about one primitive and one caller."""

    label: str
    is_allowed: bool
    reason: str
    """First condition that does not hold, in English."""
    checks: Sequence[Any]

    @classmethod
    def build(cls, column: AccessColumn, key: tuple[str, str]) -> "AccessCell":
        """Return the verdict of a column."""
        found = column.verdicts.get(key)
        if found is None:
            return cls(_("not offered"), False, str(column.refusal), ())
        if found.verdict == ALLOWED:
            return cls(_("yes"), True, "", found.checks)
        return cls(_("no") if not found.is_listed else _("listed, but not now"), False, found.verdict, found.checks)


@dataclass(frozen=True, slots=True)
class AccessRow:
    """Primitive with its requirements, and a cell for each caller."""

    kind: str
    key: str
    requirements: str
    cells: list[AccessCell]

    @property
    def kind_label(self) -> Any:
        """Kind of the primitive, in words."""
        return KIND_LABELS.get(self.kind, self.kind)


@dataclass(frozen=True, slots=True)
class AccessTable:
    """Callers and primitives."""

    columns: list[AccessColumn]
    rows: list[AccessRow]
    is_shortened: bool
    """True if there are more callers than the table has."""


def build_table(choice: dict[str, Any]) -> AccessTable:
    """Compare the chosen callers. `choice` is the cleaned data of the form."""
    server, name = choice["server"], choice["tool"]
    users = list(_iter_users(choice))
    limit = MAX_COLUMNS
    if not users and not choice["token"] and name:
        model = get_user_model()
        users = list(model._default_manager.order_by(model.USERNAME_FIELD)[: MAX_REVERSE_CALLERS + 1])
        limit = MAX_REVERSE_CALLERS
    callers = [(user.get_username(), _build_user_principal(user, choice)) for user in users]
    callers += [(f"{token.user}: {token.name}", build_token_principal(token)) for token in choice["token"]]
    columns = [_build_column(server, label, principal) for label, principal in callers[:limit]]
    return AccessTable(columns, _build_rows(columns, name), len(callers) > limit)


def list_hidden(alias: str, principal: DjangoPrincipal) -> list[InspectedPrimitive]:
    """Return the primitives that are not in the caller's lists. Raises MCPError, Overloaded."""
    return [one for one in inspect_server(wiring.get_server(alias), principal) if not one.is_listed]


def iter_csv_rows(table: AccessTable) -> Iterator[list[str]]:
    """Yield the rows of an export: one for each primitive and caller."""
    yield ["kind", "name", "requirements", "caller", "allowed", "reason"]
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            yield [row.kind, row.key, row.requirements, column.label, "yes" if cell.is_allowed else "no", cell.reason]


def _iter_users(choice: dict[str, Any]) -> Iterator[Any]:
    yield from choice["users"]
    if choice["group"] is not None:
        known = {user.pk for user in choice["users"]}
        members = get_user_model()._default_manager.filter(groups=choice["group"]).order_by("pk")
        yield from (user for user in members[: MAX_COLUMNS + 1] if user.pk not in known)


def _build_user_principal(user: Any, choice: dict[str, Any]) -> DjangoPrincipal:
    """Return the principal of a user, through a client with some scopes if the form names one."""
    acts_alone = not choice["client"] and not choice["scopes"]
    return DjangoPrincipal(
        issuer=PROJECT_ISSUER,
        subject=str(user.pk),
        client_id=choice["client"],
        user=user,
        scopes=ALL_SCOPES if acts_alone else choice["scopes"],
        kind="access",
    )


def _build_column(alias: str, label: str, principal: DjangoPrincipal) -> AccessColumn:
    if not principal.user.is_active:
        return AccessColumn(label, None, _("The account is not active."))
    if principal.audience not in (None, alias):
        return AccessColumn(label, None, _("The token is for the server %s.") % principal.audience)
    required = tuple(sorted(get_settings().servers[alias].required_scopes)) if alias in get_settings().servers else ()
    resource = ProtectedResource(server=alias, scopes=required)
    try:
        principal = async_to_sync(create_scope_filter(alias).filter_scopes)(principal, resource=resource)
    except PrincipalRefused:
        return AccessColumn(label, None, _("The authorizer or a scope grant refuses it."))
    if not principal.has_scopes(required):
        return AccessColumn(label, None, _("It lacks the scopes of every request: %s") % " ".join(required))
    found = inspect_server(wiring.get_server(alias), principal)
    return AccessColumn(label, principal, verdicts={(one.kind, one.key): one for one in found})


def _build_rows(columns: Iterable[AccessColumn], name: str) -> list[AccessRow]:
    primitives = {key: one for column in columns for key, one in column.verdicts.items() if not name or key[1] == name}
    return [
        AccessRow(kind, key, one.requirements, [AccessCell.build(column, (kind, key)) for column in columns])
        for (kind, key), one in primitives.items()
    ]

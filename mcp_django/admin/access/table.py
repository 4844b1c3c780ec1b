"""Table of access: a verdict with its reasons for each tool and caller.

The verdicts are those of lists and calls: `mcp_inspect` and the page share the code.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mcp_django import wiring
from mcp_django.auth.authentication.verifiers import build_token_principal
from mcp_django.auth.authorization.scopes import PrincipalRefused
from mcp_django.auth.principal import ALL_SCOPES, PROJECT_ISSUER, DjangoPrincipal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.conf import get_settings
from mcp_django.management.inspection import ALLOWED, InspectedPrimitive, inspect_server
from mcp_django.wiring.authorization import build_scope_filter

MAX_COLUMNS = 8
MAX_REVERSE_CALLERS = 100
KIND_LABELS = {
    "tool": gettext_lazy("tool"),
    "resource": gettext_lazy("resource"),
    "template": gettext_lazy("resource template"),
    "prompt": gettext_lazy("prompt"),
}


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
        scope_filter = build_scope_filter(wiring.get_services(), alias)
        principal = async_to_sync(scope_filter.filter_scopes)(principal, resource=resource)
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

"""Sections of the page of a service account: tokens, scope grants, policies, rates and access."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.timesince import timesince, timeuntil
from django.utils.translation import gettext as _

from mcp_django.admin.access.page import ACCESS_PERMISSION, build_access_url
from mcp_django.admin.accounts.sections import AccountSection, SectionCell, SectionLink
from mcp_django.admin.base import get_admin_url
from mcp_django.auth.authorization.rule_cache import build_grants
from mcp_django.auth.authorization.user_rights import load_as_active
from mcp_django.auth.principal import get_group_names
from mcp_django.conf import get_settings
from mcp_django.models import PersonalAccessToken, ScopeGrant, ServiceAccount, ToolPolicy

EXPIRING_DAYS = 14
"""Days before the end of a token from which on the pages warn."""
MAX_SHOWN_ROWS = 50


def get_expiry_limit() -> Any:
    """Return the time before which tokens count as expiring."""
    return timezone.now() + timedelta(days=EXPIRING_DAYS)


def describe_expiry(expires: Any) -> str:
    """Return the time until a token expires, or since it did."""
    if expires is None:
        return _("never")
    if expires <= timezone.now():
        return _("%s ago") % timesince(expires, depth=1)
    return _("in %s") % timeuntil(expires, depth=1)


def build_sections(request: HttpRequest, account: ServiceAccount) -> Iterator[AccountSection]:
    """Yield the sections that a reader with the permissions of `request` may see."""
    user: Any = request.user
    if user.has_perm("mcp_django.view_personalaccesstoken") or user.has_perm("mcp_django.change_personalaccesstoken"):
        yield _build_tokens(request, account)
    if user.has_perm("mcp_django.view_scopegrant") or user.has_perm("mcp_django.change_scopegrant"):
        yield _build_grants(request, account)
    if user.has_perm("mcp_django.view_toolpolicy") or user.has_perm("mcp_django.change_toolpolicy"):
        yield _build_policies(request, account)
    if user.has_perm(ACCESS_PERMISSION):
        link = SectionLink(_("What it may do"), build_access_url(request, account.user.get_username()))
        yield AccountSection(name="access", title=_("Who may do what"), links=(link,))


def _build_tokens(request: HttpRequest, account: ServiceAccount) -> AccountSection:
    tokens = list(PersonalAccessToken.objects.filter(user=account.user_id)[:MAX_SHOWN_ROWS])
    tokens.sort(key=lambda token: not token.is_usable)
    note = "" if tokens else _("The account has no token.")
    if tokens and not account.user.is_active:
        note = _("The account is disabled, so its tokens are refused.")
    list_url = get_admin_url(request, "mcp_django_personalaccesstoken_changelist")
    return AccountSection(
        name="tokens",
        title=_("Personal access tokens"),
        columns=(_("Name"), _("State"), _("Expires"), _("Last used"), _("Scopes"), _("Server"), ""),
        rows=[[*_build_token_row(request, token), _build_revocation(request, token)] for token in tokens],
        note=note,
        links=(SectionLink(_("All tokens of the account"), f"{list_url}?user__exact={account.user_id}"),)
        if len(tokens) == MAX_SHOWN_ROWS
        else (),
    )


def _build_token_row(request: HttpRequest, token: PersonalAccessToken) -> list[SectionCell]:
    if token.revoked_at:
        state = _("revoked")
    else:
        state = _("usable") if token.is_usable else _("expired")
    is_expiring = token.is_usable and token.expires_at is not None and token.expires_at < get_expiry_limit()
    last_used = _("never") if token.last_used_at is None else _("%s ago") % timesince(token.last_used_at, depth=1)
    return [
        SectionCell(token.name, get_admin_url(request, "mcp_django_personalaccesstoken_change", token.pk)),
        SectionCell(state),
        SectionCell(describe_expiry(token.expires_at), css_class="mcp-warning" if is_expiring else ""),
        SectionCell(last_used),
        SectionCell(" ".join(token.scopes) or _("none")),
        SectionCell(token.audience or _("all")),
    ]


def _build_revocation(request: HttpRequest, token: PersonalAccessToken) -> SectionCell:
    if token.revoked_at is not None or not request.user.has_perm("mcp_django.change_personalaccesstoken"):
        return SectionCell("")
    url = get_admin_url(request, "mcp_django_personalaccesstoken_revoke", token.pk)
    return SectionCell(_("Revoke token"), url)


def _build_grants(request: HttpRequest, account: ServiceAccount) -> AccountSection:
    rows = list(ScopeGrant.objects.all())
    user = load_as_active(account.user)
    groups = get_group_names(user)
    grants = build_grants(rows)
    table = [
        [
            SectionCell(row.scope, get_admin_url(request, "mcp_django_scopegrant_change", row.pk)),
            SectionCell(_("yes") if grants[row.scope].allows_user(user, groups) else _("no")),
            SectionCell(_("yes") if row.tokens else _("no")),
        ]
        for row in rows[:MAX_SHOWN_ROWS]
    ]
    return AccountSection(
        name="grants",
        title=_("Scope grants"),
        columns=(_("Scope"), _("The account may hold it"), _("Personal access tokens may hold it")),
        rows=table,
        note="" if table else _("No scope is reserved: a token of the account may hold each declared scope."),
    )


def _build_policies(request: HttpRequest, account: ServiceAccount) -> AccountSection:
    groups = get_group_names(load_as_active(account.user))
    policies = list(ToolPolicy.objects.all()[: MAX_SHOWN_ROWS + 1])
    rate = get_settings().rates.principal
    note = "" if rate is None else _("All calls of the account: %s at most.") % str(rate)
    list_url = get_admin_url(request, "mcp_django_toolpolicy_changelist")
    return AccountSection(
        name="policies",
        title=_("Tool policies and rates"),
        columns=(_("Tools"), _("Server"), _("Effect on the account")),
        rows=[
            [
                SectionCell(policy.tool, get_admin_url(request, "mcp_django_toolpolicy_change", policy.pk)),
                SectionCell(policy.server or _("all")),
                SectionCell("; ".join(_iter_effects(policy, groups)) or _("none")),
            ]
            for policy in policies[:MAX_SHOWN_ROWS]
        ],
        note=note or ("" if policies else _("No policy restricts the tools of this site.")),
        links=(SectionLink(_("All policies"), list_url),) if len(policies) > MAX_SHOWN_ROWS else (),
    )


def _iter_effects(policy: ToolPolicy, groups: frozenset[str]) -> Iterator[str]:
    if policy.disabled:
        yield _("disabled")
    if policy.groups and groups.isdisjoint(policy.groups):
        yield _("hidden, because it is in none of these groups: %s") % ", ".join(policy.groups)
    if policy.scopes:
        yield _("scopes: %s") % " ".join(policy.scopes)
    if policy.rate:
        yield _("rate: %s") % policy.rate

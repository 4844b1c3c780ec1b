"""System checks of personal access tokens and service accounts in the database.

They run with `check --database` and `migrate` only.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from django.core.checks import CheckMessage, Tags, Warning, register
from django.db import Error as DatabaseFailure
from django.db import connections, router

from mcp_django import conf
from mcp_django.auth.authorization.token_scopes import MissingScopes, TokenScopes
from mcp_django.models import PersonalAccessToken, ScopeGrant, ServiceAccount
from mcp_django.models.service_account import build_ownerless_condition

MAX_LISTED_ROWS = 10
"""Maximum number of tokens or accounts that a message names."""


@register(Tags.database)
def check_tokens(
    app_configs: Sequence[Any] | None = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Check that each usable token has the scopes that at least one of its servers requires."""
    if not conf.is_usable() or not conf.accepts_personal_tokens():
        return []
    return _find_problems(databases, (PersonalAccessToken, ScopeGrant), _check_scopes_of_tokens)


@register(Tags.database)
def check_accounts(
    app_configs: Sequence[Any] | None = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Check that each service account has an active owner, and cannot log in."""
    return _find_problems(databases, (ServiceAccount,), _check_owners_and_logins)


def _find_problems(
    databases: Sequence[str] | None, models: Sequence[Any], check: Callable[[str], Iterable[CheckMessage]]
) -> list[CheckMessage]:
    """Run a check of rows, if the database is checked now and has the tables of the models."""
    using = router.db_for_write(models[0])
    if using not in (databases or ()):
        return []
    try:
        return list(check(using)) if _has_tables(using, models) else []
    except DatabaseFailure:
        return []  # other checks report database errors


def _has_tables(using: str, models: Sequence[Any]) -> bool:
    """Return True if the tables exist; `migrate` runs checks before it creates them."""
    connection = connections[using]
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
    return {model._meta.db_table for model in models} <= set(tables)


def _check_scopes_of_tokens(using: str) -> Iterator[CheckMessage]:
    found = list(_iter_dead_tokens(using))
    if found:
        yield _build_warning(found)


def _check_owners_and_logins(using: str) -> Iterator[CheckMessage]:
    accounts = ServiceAccount.objects.using(using).select_related("user", "owner").order_by("pk")
    ownerless = list(accounts.filter(build_ownerless_condition()))
    if ownerless:
        yield Warning(
            f"Service accounts without an active owner: {_list_names(ownerless)}.",
            hint="Choose owners in the admin, or delete the accounts. Their tokens work until they expire.",
            id="mcp_django.W045",
        )
    with_login = [account for account in accounts if account.can_log_in]
    if with_login:
        yield Warning(
            f"Service accounts with a password, or marked as staff: {_list_names(with_login)}.",
            hint="Remove both in the admin of users: service accounts use tokens only, and their logins are refused.",
            id="mcp_django.W046",
        )


def _list_names(rows: Sequence[Any]) -> str:
    names = [str(row) for row in rows[:MAX_LISTED_ROWS]]
    return ", ".join(names) + (f" and {len(rows) - MAX_LISTED_ROWS} more" if len(rows) > MAX_LISTED_ROWS else "")


def _iter_dead_tokens(using: str) -> Iterator[tuple[PersonalAccessToken, MissingScopes]]:
    rows = PersonalAccessToken.objects.using(using).usable().select_related("user")
    scopes_by_user: dict[Any, TokenScopes] = {}
    for row in rows.order_by("pk").iterator():
        token_scopes = scopes_by_user.get(row.user_id)
        if token_scopes is None:
            token_scopes = scopes_by_user[row.user_id] = TokenScopes(row.user)
        missing = token_scopes.find_missing(row.scopes, row.audience)
        if missing is not None:
            yield row, missing


def _build_warning(found: Sequence[tuple[PersonalAccessToken, MissingScopes]]) -> CheckMessage:
    texts = [
        f"{row} of {row.user} lacks {', '.join(missing.scopes)} for {missing.server!r}"
        for row, missing in found[:MAX_LISTED_ROWS]
    ]
    if len(found) > MAX_LISTED_ROWS:
        texts.append(f"and {len(found) - MAX_LISTED_ROWS} more")
    return Warning(
        f"Personal access tokens that can do nothing, because they lack a scope that every request requires: "
        f"{len(found)}. {'; '.join(texts)}.",
        hint="Revoke them, and create new ones: mcp_createtoken and the admin preset REQUIRED_SCOPES.",
        id="mcp_django.W044",
    )

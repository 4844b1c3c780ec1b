"""System check of personal access tokens in the database, with `check --database` and `migrate` only."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.core.checks import CheckMessage, Tags, Warning, register
from django.db import Error as DatabaseFailure
from django.db import connections, router

from mcp_django import conf
from mcp_django.auth.authorization.token_scopes import MissingScopes, TokenScopes
from mcp_django.models import PersonalAccessToken, ScopeGrant

MAX_LISTED_TOKENS = 10
"""Maximum number of tokens that the message names."""


@register(Tags.database)
def check_tokens(
    app_configs: Sequence[Any] | None = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Check that each usable token has the scopes that at least one of its servers requires."""
    using = router.db_for_write(PersonalAccessToken)
    if using not in (databases or ()) or not conf.is_usable() or not conf.accepts_personal_tokens():
        return []
    try:
        if not _has_tables(using):
            return []
        found = list(_iter_dead_tokens(using))
    except DatabaseFailure:
        return []  # other checks report database errors
    return [_build_warning(found)] if found else []


def _has_tables(using: str) -> bool:
    """Return True if the tables exist and have all columns; `migrate` runs checks before it creates them."""
    connection = connections[using]
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
    return {PersonalAccessToken._meta.db_table, ScopeGrant._meta.db_table} <= set(tables)


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
        for row, missing in found[:MAX_LISTED_TOKENS]
    ]
    if len(found) > MAX_LISTED_TOKENS:
        texts.append(f"and {len(found) - MAX_LISTED_TOKENS} more")
    return Warning(
        f"Personal access tokens that can do nothing, because they lack a scope that every request requires: "
        f"{len(found)}. {'; '.join(texts)}.",
        hint="Revoke them, and create new ones: mcp_createtoken and the admin preset REQUIRED_SCOPES.",
        id="mcp_django.W044",
    )

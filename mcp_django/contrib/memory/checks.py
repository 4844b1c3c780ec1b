"""System check of the full-text search configuration."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import Error as DatabaseFailure
from django.db import connections, router

from mcp_django.contrib.memory.models import Fact
from mcp_django.contrib.memory.options import get_settings


@register(Tags.database)
def check_search_config(
    app_configs: Sequence[Any] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Check that the PostgreSQL database has the configured SEARCH_CONFIG."""
    alias, wanted = router.db_for_write(Fact), get_settings().search_config
    if alias not in (databases or ()) or connections[alias].vendor != "postgresql":
        return []

    try:
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT cfgname FROM pg_ts_config ORDER BY cfgname")
            known = [name for (name,) in cursor.fetchall()]
    except DatabaseFailure:
        return []  # other checks report database errors

    if wanted in known:
        return []
    return [
        Error(
            f'MCP["MEMORY"]["SEARCH_CONFIG"] is {wanted!r}, which the database {alias!r} does not have.',
            hint=f"It has: {', '.join(known)}.",
            id="mcp_memory.E001",
        )
    ]

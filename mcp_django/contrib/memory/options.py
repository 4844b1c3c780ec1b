"""Settings in `MCP["MEMORY"]`."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from mcp_django.conf import register_settings


def _parse_count(raw: Any) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or raw < 1:
        raise ValueError("must be a whole number of 1 or more")
    return raw


def _parse_days(raw: Any) -> float | None:
    if raw is None:
        return None
    number = isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw)
    if not number or not 0 < raw <= MAX_DAYS:
        raise ValueError(f"must be None or a number of days, up to {MAX_DAYS}")
    return float(raw)


def _match_pattern(pattern: str, description: str) -> Callable[[Any], str]:
    def read(raw: Any) -> str:
        if not isinstance(raw, str) or not re.fullmatch(pattern, raw):
            raise ValueError(f"must be {description}")
        return raw

    return read


MAX_DAYS = 36_500
"""Maximum days that a client may set: a hundred years, within the range of dates."""
Count = Annotated[int, _parse_count]
Days = Annotated[float | None, _parse_days]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """`MCP["MEMORY"]`: server, permissions, quotas and lifetimes of the memory."""

    server: Annotated[str, _match_pattern(r"[a-z][a-z0-9_-]{0,63}", "the alias of a server")] = "default"
    """Alias in `SERVERS` of the server with the tools. Read when the project starts."""
    permissions: bool = False
    """True if the tools also require Django's permissions of this app.

    Examples are `mcp_memory.view_fact` and `mcp_memory.add_fact`. Otherwise every caller with an owner has a memory.
    Read when the project starts.
    """
    read_scopes: tuple[str, ...] = ()
    """OAuth scopes required to read. Read when the project starts."""
    write_scopes: tuple[str, ...] = ()
    """OAuth scopes required to save and delete. Read when the project starts."""
    conversations_per_owner: Count = 500
    """Maximum conversations of one owner."""
    facts_per_owner: Count = 1000
    """Maximum facts of one owner."""
    bytes_per_owner: Count = 10 * 1024 * 1024
    """Maximum bytes of UTF-8 in all conversations and facts of one owner."""
    bytes_per_conversation: Count = 1024 * 1024
    """Maximum bytes of one conversation."""
    conversation_days: Days = None
    """Days after the last save until a conversation expires. None: never.

    Clients may request a shorter time, but not a longer one.
    """
    fact_days: Days = None
    """Days after the last save until a fact expires. None: never."""
    search_config: Annotated[str, _match_pattern(r"[a-z_][a-z0-9_]*", "the name of a text search configuration")] = (
        "simple"
    )
    """Text search configuration of PostgreSQL.

    "simple" is independent of the language and has an index. "english" finds "allergies" in a search for "allergy".
    """


get_settings = register_settings("MEMORY", MemorySettings)

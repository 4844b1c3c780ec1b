"""`MCP["MEMORY"]`."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from mcp_django import register_settings


def _count(raw: Any) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or raw < 1:
        raise ValueError("must be a whole number of 1 or more")
    return raw


def _days(raw: Any) -> float | None:
    if raw is None:
        return None
    number = isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw)
    if not number or not 0 < raw <= MOST_DAYS:
        raise ValueError(f"must be None or a number of days, up to {MOST_DAYS}")
    return float(raw)


def _matching(pattern: str, what: str) -> Callable[[Any], str]:
    def read(raw: Any) -> str:
        if not isinstance(raw, str) or not re.fullmatch(pattern, raw):
            raise ValueError(f"must be {what}")
        return raw

    return read


MOST_DAYS = 36_500
"""A hundred years: what a client may ask for, and short of what a date can hold."""
Count = Annotated[int, _count]
Days = Annotated[float | None, _days]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """`MCP["MEMORY"]`: who may keep what, how much, how long."""

    server: Annotated[str, _matching(r"[a-z][a-z0-9_-]{0,63}", "the alias of a server")] = "default"
    """The alias in `SERVERS` of the server that has the tools. Read when the project starts."""
    permissions: bool = False
    """Do the tools take Django's permissions of this app as well (`mcp_memory.view_fact` and so on)? Otherwise
    everybody who is somebody has a memory. Read when the project starts."""
    read_scopes: tuple[str, ...] = ()
    """The OAuth scopes it takes to read. Read when the project starts."""
    write_scopes: tuple[str, ...] = ()
    """The OAuth scopes it takes to save and delete. Read when the project starts."""
    conversations_per_owner: Count = 500
    """Conversations that one owner may keep."""
    facts_per_owner: Count = 1000
    """Facts that one owner may keep."""
    bytes_per_owner: Count = 10 * 1024 * 1024
    """Bytes of UTF-8 that they may have together."""
    bytes_per_conversation: Count = 1024 * 1024
    """Bytes that one conversation may have."""
    conversation_days: Days = None
    """Days after which a conversation expires that nothing was saved in. None: never. A client may ask for less, not
    for more."""
    fact_days: Days = None
    """The same for a fact."""
    search_config: Annotated[str, _matching(r"[a-z_][a-z0-9_]*", "the name of a text search configuration")] = "simple"
    """PostgreSQL's text search configuration. "simple" knows no language, and has an index; "english" finds "allergies"
    when "allergy" is asked for."""


get_settings = register_settings("MEMORY", MemorySettings)

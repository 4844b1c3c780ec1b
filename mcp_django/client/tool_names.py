"""What the tools of several servers are called together: `alias__tool`, in the form that APIs of models take."""

import hashlib
import re
from typing import Final

from mcp_django.conf.clients import CLIENT_ALIAS

SEPARATOR: Final = "__"
LONGEST: Final = 64
"""Characters that APIs of models take for the name of a tool."""
DIGITS: Final = 8
"""Of the digest that stands for what was left out of a name."""


def check_alias(alias: str) -> str:
    """The alias. Raises ValueError for what cannot stand before the separator."""
    if not re.fullmatch(CLIENT_ALIAS, alias):
        raise ValueError(
            f"{alias!r} is no alias: a small letter, then small letters, digits, '-' and single '_', 32 at most"
        )
    return alias


def joined(alias: str, tool: str) -> str:
    """The name of a server's tool: letters, digits, "_" and "-", 64 at most.

    What is not a letter, a digit, "_" or "-" becomes "_"; what is too long is cut. Where that changes a name, it ends
    in "_" and 8 digits of a digest of the whole name, so it stays its own, and the same each time.
    """
    whole = f"{alias}{SEPARATOR}{tool}"
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", whole)
    if safe == whole and len(whole) <= LONGEST:
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]
    return f"{safe[: LONGEST - DIGITS - 1]}_{digest}"


def alias_of(name: str) -> str | None:
    """The alias in a name, which ends where the first separator begins; None in what has none.

    A tool's own name may have separators, and may begin with "_".
    """
    alias, separator, tool = name.partition(SEPARATOR)
    return alias if separator and tool and re.fullmatch(CLIENT_ALIAS, alias) else None

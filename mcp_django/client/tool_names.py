"""Combined tool names `alias__tool`, in the form that model APIs accept."""

import hashlib
import re
from typing import Final

from mcp_django.conf.clients import CLIENT_ALIAS

SEPARATOR: Final = "__"
LONGEST: Final = 64
"""Maximum length of a tool name accepted by model APIs, in characters."""
DIGITS: Final = 8
"""Length of the digest in a changed name, in hexadecimal digits."""


def check_alias(alias: str) -> str:
    """Return a valid alias.

    Raises ValueError for an alias that cannot precede the separator.
    """
    if not re.fullmatch(CLIENT_ALIAS, alias):
        raise ValueError(
            f"{alias!r} is an invalid alias: lowercase letters, digits, '-' and single '_', a letter first, 32 at most"
        )
    return alias


def joined(alias: str, tool: str) -> str:
    """Return the combined name of a server's tool.

    It consists of at most 64 letters, digits, "_" and "-". Other characters are replaced by "_", and long names are
    truncated. A changed name ends in "_" and 8 digits of a digest of the full name, so that it is unique and stable.
    """
    whole = f"{alias}{SEPARATOR}{tool}"
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", whole)
    if safe == whole and len(whole) <= LONGEST:
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]
    return f"{safe[: LONGEST - DIGITS - 1]}_{digest}"


def alias_of(name: str) -> str | None:
    """Return the alias before the first separator of a name.

    Returns None without a valid alias. The server's own tool name may contain separators and may start with "_".
    """
    alias, separator, tool = name.partition(SEPARATOR)
    return alias if separator and tool and re.fullmatch(CLIENT_ALIAS, alias) else None

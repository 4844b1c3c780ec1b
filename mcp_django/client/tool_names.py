"""Combined tool names `alias__tool`, in the form that model APIs accept."""

import hashlib
import re
from typing import Final

from mcp_django.conf.clients import CLIENT_ALIAS_PATTERN

SEPARATOR: Final = "__"
MAX_NAME_LENGTH: Final = 64
"""Maximum length of a tool name accepted by model APIs, in characters."""
DIGEST_LENGTH: Final = 8
"""Length of the digest in a changed name, in hexadecimal digits."""


def check_alias(alias: str) -> str:
    """Return a valid alias.

    Raises ValueError for an alias that cannot precede the separator.
    """
    if not re.fullmatch(CLIENT_ALIAS_PATTERN, alias):
        raise ValueError(
            f"{alias!r} is an invalid alias: lowercase letters, digits, '-' and single '_', a letter first, 32 at most"
        )
    return alias


def join_name(alias: str, tool: str) -> str:
    """Return the combined name of a server's tool.

    It consists of at most 64 letters, digits, "_" and "-". Other characters are replaced by "_", and long names are
    truncated. A changed name ends in "_" and 8 digits of a digest of the full name, so that it is unique and stable.
    """
    full_name = f"{alias}{SEPARATOR}{tool}"
    safe_name = re.sub(r"[^A-Za-z0-9_-]", "_", full_name)
    if safe_name == full_name and len(full_name) <= MAX_NAME_LENGTH:
        return full_name
    digest = hashlib.sha256(full_name.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH]
    return f"{safe_name[: MAX_NAME_LENGTH - DIGEST_LENGTH - 1]}_{digest}"


def get_alias(name: str) -> str | None:
    """Return the alias before the first separator of a name.

    Returns None without a valid alias. The server's own tool name may contain separators and may start with "_".
    """
    alias, separator, tool = name.partition(SEPARATOR)
    return alias if separator and tool and re.fullmatch(CLIENT_ALIAS_PATTERN, alias) else None

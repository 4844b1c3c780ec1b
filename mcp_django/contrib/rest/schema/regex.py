"""Conversion of Python's regular expressions to those of JSON Schema (ECMA 262)."""

import re
from typing import Any

_UNPORTABLE = re.compile(r"\(\?P|\(\?[aiLmsux]+[-:)]|\(\?\(|\\[AZz]|\(\?<[=!]|\(\?>|[*+?}]\+")
"""Syntax with another or no meaning in ECMA 262.

It covers named groups, flags, conditions, look-behind and inner anchors.
"""


def convert_to_ecma(regex: Any) -> str | None:
    """Return the pattern of a compiled expression, or None without an equivalent."""
    if regex.flags & ~(re.UNICODE | re.ASCII):
        return None
    pattern = str(regex.pattern)

    start = pattern.startswith(("^", r"\A"))
    pattern = pattern.removeprefix(r"\A").removeprefix("^")
    for end in (r"\Z", r"\z", "$"):
        if pattern.endswith(end) and not pattern.endswith(f"\\{end}"):
            pattern = f"{pattern.removesuffix(end)}$"
            break

    if _UNPORTABLE.search(pattern):
        return None
    # RegexValidator searches, as `pattern` does.
    return f"^{pattern}" if start else pattern

"""Python's regular expressions as JSON Schema writes them (ECMA 262)."""

import re
from typing import Any

_UNKNOWN = re.compile(r"\(\?P|\(\?[aiLmsux]+[-:)]|\(\?\(|\\[AZz]|\(\?<[=!]|\(\?>|[*+?}]\+")
"""What has another meaning there, or none: named groups, flags, conditions, look-behind, anchors inside."""


def portable(regex: Any) -> str | None:
    """The pattern of a compiled expression; None where it has no form that means the same."""
    if regex.flags & ~(re.UNICODE | re.ASCII):
        return None
    pattern = str(regex.pattern)
    start = pattern.startswith(("^", r"\A"))
    pattern = pattern.removeprefix(r"\A").removeprefix("^")
    for end in (r"\Z", r"\z", "$"):
        if pattern.endswith(end) and not pattern.endswith(f"\\{end}"):
            pattern = f"{pattern.removesuffix(end)}$"
            break
    if _UNKNOWN.search(pattern):
        return None
    # RegexValidator searches, as `pattern` does.
    return f"^{pattern}" if start else pattern

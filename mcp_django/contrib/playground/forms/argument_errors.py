"""Errors of a server, at the arguments that they name.

Servers of this package describe problems as `place: rule`, joined by semicolons, and `missing argument 'name'`. Parts
of other texts name no argument.
"""

import re
from collections.abc import Collection, Iterator, Mapping

from mcp_django.schema.validation.messages import format_path

_MISSING = re.compile(r"missing (?:argument|key|field) '(.*?)'", re.DOTALL)
ArgumentPath = tuple[str, ...]


def find_argument_errors(text: str, paths: Collection[ArgumentPath]) -> Iterator[tuple[ArgumentPath, str]]:
    """Yield the parts of an error with the path of the argument that each names."""
    known = {format_path(path): path for path in paths}
    path: ArgumentPath | None = None
    parts: list[str] = []
    for part in text.split("; "):
        found = _find_path(part, known)
        # The remedy after a semicolon belongs to the problem before it.
        if found is None and path is not None and not _names_place(part):
            parts.append(part)
            continue
        if path is not None:
            yield path, "; ".join(parts)
        path, parts = found, [part]
    if path is not None:
        yield path, "; ".join(parts)


def _find_path(part: str, known: Mapping[str, ArgumentPath]) -> ArgumentPath | None:
    """Return the path of the argument, or of the argument around the place, that a part of an error names."""
    place, colon, rule = part.rpartition(": ") if _MISSING.search(part) else part.partition(": ")
    missing = _MISSING.fullmatch(rule if colon else part)
    if missing is not None:
        place = f"{place}.{missing[1]}" if colon else missing[1]
    elif not colon:
        return None
    if place in known:
        return known[place]
    around = [name for name in known if place.startswith((f"{name}.", f"{name}["))]
    return known[max(around, key=len)] if around else None


def _names_place(part: str) -> bool:
    return ": " in part or part.startswith(("missing ", "unknown "))

"""Content-Security-Policy of a view, built from its declared origins only.

The `sandbox` directive gives the document an opaque origin, even if its URL is opened outside of the frame. Such a
document has no cookies, no storage and no access to this site. Other hosts allow `'self'`, the empty origin of their
sandbox. Here it would be this site, so the policy omits it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

MAX_ORIGINS = 100
"""Maximum number of origins in one list of a declaration. The remaining ones are ignored."""
_ORIGIN = re.compile(r"(?:https?|wss?)://(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?")
_RESOURCES = "resourceDomains"
_DIRECTIVES = (
    ("script-src", "'unsafe-inline'", _RESOURCES),
    ("style-src", "'unsafe-inline'", _RESOURCES),
    ("img-src", "data:", _RESOURCES),
    ("font-src", "", _RESOURCES),
    ("media-src", "data:", _RESOURCES),
    ("connect-src", "", "connectDomains"),
    ("frame-src", "", "frameDomains"),
    ("base-uri", "", "baseUriDomains"),
)


def build_view_policy(declaration: Mapping[str, Any]) -> str:
    """Return the policy for a declaration `csp` of `_meta.ui`.

    Entries that are no origins are ignored, so they cannot add directives.
    """
    directives = ["sandbox allow-scripts", "default-src 'none'"]
    for name, always, field in _DIRECTIVES:
        sources = [*([always] if always else []), *read_origins(declaration.get(field))]
        directives.append(" ".join([name, *(sources or ["'none'"])]))
    return "; ".join([*directives, "object-src 'none'", "form-action 'none'", "frame-ancestors 'self'"])


def read_origins(declared: Any) -> list[str]:
    """Return the valid origins of a declared list, such as `https://cdn.example`."""
    entries: Iterable[Any] = declared[:MAX_ORIGINS] if isinstance(declared, list) else ()
    return [entry for entry in entries if isinstance(entry, str) and _ORIGIN.fullmatch(entry)]

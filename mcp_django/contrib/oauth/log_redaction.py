"""Redaction of credentials in the logs of oauthlib and django-oauth-toolkit.

Both log codes, tokens and redirects with codes at DEBUG. Their records are kept without the secrets. The filters are
attached to the loggers, so that no handler receives a secret.
"""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mcp_django.logs.redaction import REDACTED, Patterns, RedactionFilter

PACKAGES: Final = ("oauthlib", "oauth2_provider")

_SECRET_NAMES = (
    "code|access_token|refresh_token|id_token|client_secret|code_verifier|password|token|assertion|user_code"
)
PATTERNS: Final[Patterns] = (
    (re.compile(r"\bmcp_(?:at|rt|pat)_\w+"), REDACTED),
    # 'code': 'x' of a dict, code=x of a form or URL.
    (
        re.compile(rf"""(?i)\b((?:{_SECRET_NAMES}|device_code)['"]?\s{{0,4}}[:=]\s{{0,4}}['"]?)[^\s'"&,}})]+"""),
        rf"\1{REDACTED}",
    ),
    # Words of oauthlib around a value.
    (
        re.compile(r"(?i)\b((?:refresh |access )token,? )(?!for\b|is\b|was\b|request\b|lack)[^\s,]+"),
        rf"\1{REDACTED}",
    ),
)
_FILTER: Final = RedactionFilter(PATTERNS)


def install() -> None:
    """Attach the filter to each logger of these packages."""
    _FILTER.install(sorted(set(_iter_logger_names())))


def _iter_logger_names() -> Iterator[str]:
    """Yield the names of all modules. Some are imported later or never."""
    for name in PACKAGES:
        spec = find_spec(name)
        for place in [] if spec is None else spec.submodule_search_locations or []:
            for path in Path(place).rglob("*.py"):
                parts = path.relative_to(place).with_suffix("").parts
                yield ".".join((name, *(part for part in parts if part != "__init__")))

"""Taking secrets out of log lines before a client sees them (server/utilities/logging, security: no credentials).

What is known to be secret goes wherever it stands: what the call's own headers prove identity with. What looks like a
secret goes as well: values named password, token, key and the like, credentials in URLs, JSON web tokens, private keys.
"""

import re

from mcp_django.server.calls.call import Call, credentials

REDACTED = "[redacted]"
LONGEST = 4096
"""Characters of a line that are sent."""
_SCANNED, _EDGE = 4 * LONGEST, 512
"""Characters that are looked at, and how many at their end may be half of a secret and are never sent."""
_SHORTEST = 6
"""Characters that a value must have to be known again; a shorter one stands in ordinary words."""

_NAMED = (
    r"(?i)(passw(?:or)?d|passphrase|pwd|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|session[_-]?(?:id|key)|csrf|signature)([\w-]{0,40}[\"']?\s{0,4}(?:[:=]|=>)\s{0,4})"
    r"(\"[^\"]*\"?|'[^']*'?|[^\s,;&)}\]]+)"
)
_PATTERNS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?is)-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*", REDACTED),
        (r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)\b([\"']?\s{0,4}[:=])[^\n]*", rf"\1\2 {REDACTED}"),
        (r"(?i)\b(bearer|basic)\s{1,4}[\w.~+/=-]{6,}", rf"\1 {REDACTED}"),
        (_NAMED, rf"\1\2{REDACTED}"),
        (r"(://)[^/\s@]{1,256}@", rf"\1{REDACTED}@"),
        (r"\beyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?", REDACTED),
        (r"\bmcp_pat_\w+", REDACTED),
    )
)


def redacted(text: str, call: Call) -> str:
    """The text without what looks like a secret or is one of the call's, cut to LONGEST characters."""
    for secret in sorted(credentials(call.connection.headers), key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, REDACTED)
    rest = len(text) > _SCANNED
    text = text[:_SCANNED]
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    if rest:
        text = text[:-_EDGE]
    return f"{text[:LONGEST]}…" if rest or len(text) > LONGEST else text

"""Redaction of secrets in log lines for clients.

See server/utilities/logging, security: credentials must not be sent. Known secrets are the credentials in the call's
own headers. Likely secrets are values named password, token, key and the like, credentials in URLs, JSON web tokens and
private keys.
"""

import re

from mcp_django.server.calls.call import Call, credentials

REDACTED = "[redacted]"
LONGEST = 4096
"""Maximum length of a sent line in characters."""
_SCANNED, _EDGE = 4 * LONGEST, 512
"""Number of scanned characters, and of those at their end that are never sent.

The end may contain one half of a secret.
"""
_SHORTEST = 6
"""Minimum length of a known secret in characters.

Shorter ones occur in ordinary words.
"""

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
    """Return the text without secrets, cut to `MAX_TEXT_CHARACTERS`."""
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

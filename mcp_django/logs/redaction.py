"""Redaction of secrets in log lines for clients.

See server/utilities/logging, security: credentials must not be sent. Known secrets are the credentials in the call's
own headers. Likely secrets are values named password, token, key and the like, credentials in URLs, JSON web tokens and
private keys.
"""

import re

from mcp_django.server.calls.call import Call, iter_header_secrets

REDACTED = "[redacted]"
MAX_TEXT_CHARACTERS = 4096
"""Maximum length of a sent line in characters."""
_MAX_SCANNED_CHARACTERS, _UNSAFE_TAIL_CHARACTERS = 4 * MAX_TEXT_CHARACTERS, 512
"""Number of scanned characters, and of those at their end that are never sent.

The end may contain one half of a secret.
"""
_MIN_SECRET_CHARACTERS = 6
"""Minimum length of a known secret in characters.

Shorter ones occur in ordinary words.
"""

_NAMED_SECRET = (
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
        (_NAMED_SECRET, rf"\1\2{REDACTED}"),
        (r"(://)[^/\s@]{1,256}@", rf"\1{REDACTED}@"),
        (r"\beyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?", REDACTED),
        (r"\bmcp_pat_\w+", REDACTED),
    )
)


def redacted(text: str, call: Call) -> str:
    """Return the text without secrets, cut to `MAX_TEXT_CHARACTERS`."""
    for secret in sorted(iter_header_secrets(call.connection.headers), key=len, reverse=True):
        if len(secret) >= _MIN_SECRET_CHARACTERS:
            text = text.replace(secret, REDACTED)
    is_truncated = len(text) > _MAX_SCANNED_CHARACTERS
    text = text[:_MAX_SCANNED_CHARACTERS]
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    if is_truncated:
        text = text[:-_UNSAFE_TAIL_CHARACTERS]
    return f"{text[:MAX_TEXT_CHARACTERS]}…" if is_truncated or len(text) > MAX_TEXT_CHARACTERS else text

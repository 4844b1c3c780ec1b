"""Redaction of secrets in log lines: of this process, and of lines for clients.

Lines for clients must not contain credentials (server/utilities/logging, security). Known secrets are the credentials
in the call's own headers. Likely secrets are values named password, token, key and the like, credentials in URLs, JSON
web tokens and private keys. Libraries that log URLs or tokens get a `RedactionFilter` on their loggers.
"""

import logging
import re
from collections.abc import Iterable

from mcp_django.server.calls.call import Call, iter_header_secrets

REDACTED = "[redacted]"
Patterns = tuple[tuple[re.Pattern[str], str], ...]
"""Patterns of secrets, each with its replacement."""
URL_PATTERNS: Patterns = (
    (re.compile(r"(https?://[^\s'\"?]*)\?[^\s'\"]*"), r"\1"),
    (re.compile(r"(https?://)[^\s'\"/?@]*@"), r"\1"),
)
"""Patterns that remove queries, users and passwords from URLs."""
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
    text = replace_patterns(text, _PATTERNS)
    if is_truncated:
        text = text[:-_UNSAFE_TAIL_CHARACTERS]
    return f"{text[:MAX_TEXT_CHARACTERS]}…" if is_truncated or len(text) > MAX_TEXT_CHARACTERS else text


def replace_patterns(text: str, patterns: Patterns) -> str:
    """Return the text with everything that the patterns match replaced."""
    for pattern, replacement in patterns:
        text = pattern.sub(replacement, text)
    return text


class RedactionFilter(logging.Filter):
    """Logging filter that keeps records, and redacts their messages and tracebacks.

        RedactionFilter(URL_PATTERNS).install(["httpx"])  # no queries, users and passwords of URLs

    Records whose message starts with one of `dropped_prefixes` are dropped.
    """

    def __init__(self, patterns: Patterns, *, dropped_prefixes: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._patterns = patterns
        self._dropped_prefixes = dropped_prefixes

    def install(self, logger_names: Iterable[str]) -> None:
        """Attach the filter to loggers. Idempotent.

        A record is filtered by the logger that writes it. Filters of parent loggers do not apply.
        """
        for name in logger_names:
            logging.getLogger(name).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text.startswith(self._dropped_prefixes):
            return False
        clean = replace_patterns(text, self._patterns)
        if clean != text:
            record.msg = clean
            record.args = ()
        if record.exc_info:
            traceback = record.exc_text or logging.Formatter().formatException(record.exc_info)
            clean = replace_patterns(traceback, self._patterns)
            if clean != traceback:
                record.exc_text = clean  # Formatters use this text if it is set.
        return True

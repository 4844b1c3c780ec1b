"""Redaction of URL queries, handshake headers and session ids in logs."""

import logging
import re
from typing import Final

import httpx2

_QUERY: Final = re.compile(r"(https?://[^\s'\"?]*)\?[^\s'\"]*")
_LOGIN: Final = re.compile(r"(https?://)[^\s'\"/?@]*@")
_HANDSHAKE: Final = frozenset({"> GET %s HTTP/1.1", "> %s: %s", "< %s: %s"})
_HIDDEN: Final = ("Received session ID", "receive_response_headers.complete")
"""Prefixes of dropped log messages: they contain session ids or response headers."""


class _OverHTTP(logging.Filter):
    """Redacts URLs in log records, and drops records with response headers."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            if record.msg.startswith(_HIDDEN):
                return False
            record.msg = _short(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(_short(str(arg)) if isinstance(arg, httpx2.URL | str) else arg for arg in record.args)
        if record.exc_info:
            # Formatters use this text if it is set.
            record.exc_text = _short(record.exc_text or logging.Formatter().formatException(record.exc_info))
        return True


class _OfHandshakes(logging.Filter):
    """Drops records of the HTTP requests and headers that open a WebSocket."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg not in _HANDSHAKE


_OVER_HTTP: Final = _OverHTTP()
FRAMES: Final = logging.getLogger("mcp_django.client.websocket.frames")
"""Logger for the WebSocket library's frames of client connections."""
FRAMES.addFilter(_OfHandshakes())


def shorten_urls() -> None:
    """Install the redaction filters on the loggers of HTTP libraries. Idempotent."""
    for name in ("httpx2", "httpcore2.http11", "httpcore2.http2", "mcp.client.streamable_http"):
        logging.getLogger(name).addFilter(_OVER_HTTP)


def _short(text: str) -> str:
    return _LOGIN.sub(r"\1", _QUERY.sub(r"\1", text)) if "://" in text else text

"""Redaction of URL queries, handshake headers and session ids in logs."""

import logging
import re
from typing import Final

import httpx2

_QUERY: Final = re.compile(r"(https?://[^\s'\"?]*)\?[^\s'\"]*")
_USERINFO: Final = re.compile(r"(https?://)[^\s'\"/?@]*@")
_HANDSHAKE_FORMATS: Final = frozenset({"> GET %s HTTP/1.1", "> %s: %s", "< %s: %s"})
_DROPPED_PREFIXES: Final = ("Received session ID", "receive_response_headers.complete")
"""Prefixes of dropped log messages: they contain session ids or response headers."""


class _HTTPLogFilter(logging.Filter):
    """Redacts URLs in log records, and drops records with response headers."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            if record.msg.startswith(_DROPPED_PREFIXES):
                return False
            record.msg = _redact_urls(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(
                _redact_urls(str(arg)) if isinstance(arg, httpx2.URL | str) else arg for arg in record.args
            )
        if record.exc_info:
            # Formatters use this text if it is set.
            record.exc_text = _redact_urls(record.exc_text or logging.Formatter().formatException(record.exc_info))
        return True


class _HandshakeLogFilter(logging.Filter):
    """Drops records of the HTTP requests and headers that open a WebSocket."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg not in _HANDSHAKE_FORMATS


_HTTP_LOG_FILTER: Final = _HTTPLogFilter()
FRAMES_LOGGER: Final = logging.getLogger("mcp_django.client.websocket.frames")
"""Logger for the WebSocket library's frames of client connections."""
FRAMES_LOGGER.addFilter(_HandshakeLogFilter())


def install_log_filters() -> None:
    """Install the redaction filters on the loggers of HTTP libraries. Idempotent."""
    for name in ("httpx2", "httpcore2.http11", "httpcore2.http2", "mcp.client.streamable_http"):
        logging.getLogger(name).addFilter(_HTTP_LOG_FILTER)


def _redact_urls(text: str) -> str:
    return _USERINFO.sub(r"\1", _QUERY.sub(r"\1", text)) if "://" in text else text

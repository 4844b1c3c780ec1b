"""What libraries log of the way to a server, without what may be secret there: the query of its URL, the headers of a
handshake, the id of a session.
"""

import logging
import re
from typing import Final

import httpx2

_QUERY: Final = re.compile(r"(https?://[^\s'\"?]*)\?[^\s'\"]*")
_LOGIN: Final = re.compile(r"(https?://)[^\s'\"/?@]*@")
_HANDSHAKE: Final = frozenset({"> GET %s HTTP/1.1", "> %s: %s", "< %s: %s"})
_HIDDEN: Final = ("Received session ID", "receive_response_headers.complete")
"""How lines begin that tell a session, or the headers of an answer."""


class _OverHTTP(logging.Filter):
    """Shortens URLs, wherever they stand, and leaves out what answers have in their headers."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            if record.msg.startswith(_HIDDEN):
                return False
            record.msg = _short(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(_short(str(arg)) if isinstance(arg, httpx2.URL | str) else arg for arg in record.args)
        if record.exc_info:
            # A formatter takes this text where there is one.
            record.exc_text = _short(record.exc_text or logging.Formatter().formatException(record.exc_info))
        return True


class _OfHandshakes(logging.Filter):
    """Leaves out what the two sides of a socket send before its first frame."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg not in _HANDSHAKE


_OVER_HTTP: Final = _OverHTTP()
FRAMES: Final = logging.getLogger("mcp_django.client.websocket.frames")
"""Where the library of WebSockets logs the sockets of clients."""
FRAMES.addFilter(_OfHandshakes())


def shorten_urls() -> None:
    """Keep secrets out of the logs of the libraries that speak HTTP. It may be called often."""
    for name in ("httpx2", "httpcore2.http11", "httpcore2.http2", "mcp.client.streamable_http"):
        logging.getLogger(name).addFilter(_OVER_HTTP)


def _short(text: str) -> str:
    return _LOGIN.sub(r"\1", _QUERY.sub(r"\1", text)) if "://" in text else text

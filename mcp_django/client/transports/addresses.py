"""Validation of server URLs and headers, and redaction of secrets in URLs."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, section 5.1
_VALUE = re.compile(r"[\x21-\x7e\x80-\xff]([\x20-\x7e\t\x80-\xff]*[\x21-\x7e\x80-\xff])?|")  # section 5.5
_RESERVED_HEADERS = frozenset(
    {"connection", "content-length", "content-type", "host", "mcp-session-id", "transfer-encoding"}
)


def validate_url(url: str, *schemes: str) -> str:
    """Return a valid URL. Raises ValueError without quoting secret parts."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        raise ValueError("the URL is invalid") from None
    if parts.scheme not in schemes:
        raise ValueError(f"the URL must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    if not host:
        raise ValueError("the URL has no host")
    if parts.fragment:
        raise ValueError("the URL has a fragment, which is never sent; remove it")
    if re.search(r"[\x00-\x20\x7f]", url):
        raise ValueError("the URL contains whitespace or control characters")
    return url


def validate_headers(headers: Mapping[Any, Any]) -> dict[str, str]:
    """Return a copy of valid headers.

    Raises ValueError with names, but without values.
    """
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is an invalid header name")
        if name.lower() in _RESERVED_HEADERS:
            raise ValueError(f"the header {name} is set by the transport")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ValueError(f"the value of the header {name} is invalid")
    return dict(headers)


def redact_url(url: str) -> str:
    """Return the URL without user, password, query and fragment, which may be secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

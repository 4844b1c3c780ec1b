"""URLs and headers of servers, as a project writes them: checked before they are used, and shown without secrets."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, section 5.1
_VALUE = re.compile(r"[\x21-\x7e\x80-\xff]([\x20-\x7e\t\x80-\xff]*[\x21-\x7e\x80-\xff])?|")  # section 5.5
_OURS = frozenset({"connection", "content-length", "content-type", "host", "mcp-session-id", "transfer-encoding"})


def checked_url(url: str, *schemes: str) -> str:
    """The URL. Raises ValueError, which names no part of it that could be secret."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        raise ValueError("the URL cannot be read") from None
    if parts.scheme not in schemes:
        raise ValueError(f"the URL begins with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    if not host:
        raise ValueError("the URL names no host")
    if parts.fragment:
        raise ValueError("the URL has a fragment, which no server sees")
    if re.search(r"[\x00-\x20\x7f]", url):
        raise ValueError("the URL has a blank or a control character in it")
    return url


def checked_headers(headers: Mapping[Any, Any]) -> dict[str, str]:
    """A copy of the headers. Raises ValueError, which names headers but shows no values."""
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header")
        if name.lower() in _OURS:
            raise ValueError(f"the header {name} is set by the transport")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ValueError(f"the value of the header {name} cannot be sent")
    return dict(headers)


def shown(url: str) -> str:
    """The URL without what may be secret: user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

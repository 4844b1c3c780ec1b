"""Keys of ``_meta``: the protocol's, the bare ones it allows, ours, and the grammar of all others."""

from __future__ import annotations

import re
from typing import Any

PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"

PROGRESS_TOKEN = "progressToken"
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
BAGGAGE = "baggage"

TAGS = "mcp-django/tags"
"""Where the tags of a tool, resource or prompt travel: an array of strings."""

ERRORS = "mcp-django/errors"
"""Where a tool error tells what is wrong with which value: an object of arrays of strings, by field. Not the structured
content, which has to fit the tool's output schema whatever happened (server/tools).
"""

LONGEST_PROGRESS_TOKEN = 1024
"""Characters. Each progress notification repeats the token, so a long one makes a long answer to a short request."""

WRONG_PROGRESS_TOKEN = (
    f"_meta progressToken must be an integer or a string of {LONGEST_PROGRESS_TOKEN} characters at most"
)

_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:({_LABEL}(?:\.{_LABEL})*)/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")
_RESERVED = frozenset({"modelcontextprotocol", "mcp"})


def is_progress_token(value: Any) -> bool:
    """Whether `value` is an integer, or a string that is worth repeating."""
    return type(value) is int or (type(value) is str and len(value) <= LONGEST_PROGRESS_TOKEN)


def is_valid_key(key: str) -> bool:
    """Whether `key` follows the grammar: an optional prefix of dot-separated labels and a slash, then a name."""
    return _KEY.fullmatch(key) is not None


def is_reserved(key: str) -> bool:
    """Whether the key's prefix belongs to the protocol: its second label is ``modelcontextprotocol`` or ``mcp``."""
    found = _KEY.fullmatch(key)
    if found is None or found[1] is None:
        return False
    labels = found[1].split(".")
    return len(labels) > 1 and labels[1].lower() in _RESERVED

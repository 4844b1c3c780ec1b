"""Keys of ``_meta``: those of the protocol and of this project, and their grammar."""

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

TAGS_KEY = "mcp-django/tags"
"""Key of the tags of a tool, resource or prompt: an array of strings."""

ERRORS_KEY = "mcp-django/errors"
"""Key of the details of a tool error: an object of arrays of strings, by field.

Structured content is not used for them, because it must fit the tool's output schema in every case (server/tools).
"""

QUESTION_KEY = "mcp-django/question"
"""Key of a form in the result of a tool, which the page of an app shows to its user."""

ORIGIN_KEY = "mcp-django/origin"
"""Key of the name prefixes of the proxies that a result for a page came through.

The page of an app compares them with its own.
"""

MAX_PROGRESS_TOKEN_LENGTH = 1024
"""Maximum length of a progress token in characters.

Each progress notification repeats the token, so a long one makes a long response to a short request.
"""

PROGRESS_TOKEN_ERROR = (
    f"_meta progressToken must be an integer or a string of {MAX_PROGRESS_TOKEN_LENGTH} characters at most"
)

_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:({_LABEL}(?:\.{_LABEL})*)/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")
_RESERVED = frozenset({"modelcontextprotocol", "mcp"})
_OWN_PREFIX = "mcp-django/"


def is_progress_token(value: Any) -> bool:
    """Return True for an integer, or a string of acceptable length."""
    return type(value) is int or (type(value) is str and len(value) <= MAX_PROGRESS_TOKEN_LENGTH)


def is_valid_key(key: str) -> bool:
    """Return True if `key` follows the grammar.

    The grammar is an optional prefix of dot-separated labels and a slash, then a name.
    """
    return _KEY.fullmatch(key) is not None


def is_own(key: Any) -> bool:
    """Return True for a key of this project, which no other server may set."""
    return isinstance(key, str) and key.startswith(_OWN_PREFIX)


def remove_own_keys(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object of another server, with a ``_meta`` without keys of this project."""
    meta = item.get("_meta")
    if type(meta) is not dict or not any(map(is_own, meta)):
        return item
    return {**item, "_meta": {key: value for key, value in meta.items() if not is_own(key)}}


def remove_own_keys_of_block(block: dict[str, Any]) -> dict[str, Any]:
    """Return a content block of another server without keys of this project.

    Its resource and its inner blocks lose them as well.
    """
    resource, inner = block.get("resource"), block.get("content")
    if type(resource) is dict:
        block = {**block, "resource": remove_own_keys(resource)}
    if type(inner) is list:
        cleaned = [remove_own_keys_of_block(item) if type(item) is dict else item for item in inner]
        block = {**block, "content": cleaned}
    return remove_own_keys(block)


def is_reserved(key: str) -> bool:
    """Return True if the key's prefix belongs to the protocol.

    Its second label is then ``modelcontextprotocol`` or ``mcp``.
    """
    found = _KEY.fullmatch(key)
    if found is None or found[1] is None:
        return False
    labels = found[1].split(".")
    return len(labels) > 1 and labels[1].lower() in _RESERVED

"""Validation and normalization of values given by clients.

Invalid values raise ValidationError, whose text the caller of a tool receives.
"""

import json
import re
import secrets
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError

from mcp_django import types
from mcp_django.contrib.memory.models import MAX_CATEGORY_CHARACTERS, MAX_NAME_CHARACTERS, MAX_TITLE_CHARACTERS
from mcp_django.contrib.memory.options import MAX_DAYS

NAME_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._~-]{{0,{MAX_NAME_CHARACTERS - 1}}}"
"""Pattern of an id, which is valid in a URI as it is and is not a path."""
MAX_TAGS, MAX_TAG_CHARACTERS = 20, 50
ROLES = ("user", "assistant", "system", "tool")
MAX_EXCERPT_CHARACTERS = 80
_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_DEPTH = 100
"""Maximum nesting of metadata and messages."""


class MemoryFull(ValidationError):
    """A quota is reached."""


def generate_name() -> str:
    """Return a new id: 96 random bits."""
    return secrets.token_hex(12)


def is_valid_name(given: str) -> bool:
    """Return True if the text can be an id. Databases do not accept all other texts."""
    return re.fullmatch(NAME_PATTERN, given) is not None


def clean_name(given: str) -> str:
    """Return a valid id, or raise ValidationError."""
    if not is_valid_name(given):
        raise ValidationError(
            f"An id must have 1 to {MAX_NAME_CHARACTERS} letters, digits, or . _ ~ -, and start with a letter or digit."
        )
    return given


def clean_line(given: str, label: str, max_characters: int) -> str:
    """Return text as one line of visible characters, without surrounding space."""
    line = types.clean_line(_check_text(given))
    if len(line) > max_characters:
        raise ValidationError(f"The {label} may have at most {max_characters} characters.")
    return line


def clean_title(given: str) -> str:
    """Return a normalized title."""
    return clean_line(given, "title", MAX_TITLE_CHARACTERS)


def clean_category(given: str) -> str:
    """Return a normalized category; case is ignored."""
    return clean_line(given, "category", MAX_CATEGORY_CHARACTERS).casefold()[:MAX_CATEGORY_CHARACTERS]


def clean_tags(given: Iterable[str]) -> list[str]:
    """Return normalized tags without duplicates; case is ignored."""
    if isinstance(given, str):
        raise ValidationError("Tags must be a list of words.")
    tags = list(dict.fromkeys(clean_line(tag, "tag", MAX_TAG_CHARACTERS).casefold() for tag in given))
    if len(tags) > MAX_TAGS:
        raise ValidationError(f"At most {MAX_TAGS} tags are possible.")
    return [tag for tag in tags if tag]


def clean_text(given: str, label: str, max_characters: int) -> str:
    """Return a text of one or more lines of visible characters, which must not be empty."""
    text = types.clean_text(_check_text(given)).strip()
    if not text:
        raise ValidationError(f"The {label} is empty.")
    if len(text) > max_characters:
        raise ValidationError(f"The {label} may have at most {max_characters} characters.")
    return text


def clean_lifetime(days: float | None) -> timedelta | None:
    """Return the lifetime for a number of days; None for None."""
    if days is None:
        return None
    if not 0 < days <= MAX_DAYS:
        raise ValidationError(f"The lifetime must be more than 0 and at most {MAX_DAYS} days.")
    return timedelta(days=days)


def clean_messages(given: Iterable[Any]) -> list[dict[str, Any]]:
    """Return normalized messages: mappings with `role` and `content`.

    They may also have `id`, `name` and `time`.
    """
    messages: list[dict[str, Any]] = []
    for number, message in enumerate(given, 1):
        members = {key: value for key, value in dict(message).items() if value is not None}
        if unknown := members.keys() - {"role", "content", "id", "name", "time"}:
            raise ValidationError(f"Message {number} has unknown members: {', '.join(sorted(unknown))}.")
        if members.get("role") not in ROLES:
            raise ValidationError(f"Message {number} has no valid role; use one of {', '.join(ROLES)}.")
        if not isinstance(members.get("content"), str | list):
            raise ValidationError(f"Message {number} has no valid content; use a text or a list of content blocks.")
        for key in ("id", "name", "time"):
            if not isinstance(members.get(key, ""), str):
                raise ValidationError(f"The {key} of message {number} must be a text.")
        messages.append(members)

    plain: list[dict[str, Any]] = _to_plain_json(messages, "messages")
    return plain


def clean_metadata(given: dict[str, Any]) -> dict[str, Any]:
    """Return metadata as a JSON object."""
    plain: dict[str, Any] = _to_plain_json(given, "metadata")
    return plain


def build_excerpt(messages: list[dict[str, Any]]) -> str:
    """Return a title for a conversation: the beginning of its first user message."""
    for message in messages:
        if message["role"] == "user" and isinstance(message["content"], str):
            return types.clean_line(message["content"], MAX_EXCERPT_CHARACTERS)
    return ""


def count_bytes(*values: Any) -> int:
    """Return the UTF-8 bytes of these values: texts unchanged, other values as JSON."""
    texts = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values)
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _to_plain_json(value: Any, label: str) -> Any:
    """Return the value as JSON stores it."""
    try:
        plain = json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise ValidationError(f"The {label} must be valid JSON.") from None
    _check_json(plain, label)
    return plain


def _check_json(value: Any, label: str, depth: int = 0) -> None:
    """Raise ValidationError for characters that cannot be stored, and deep nesting.

    A row that is nested deeply could not be read on each stack.
    """
    if depth > MAX_DEPTH:
        raise ValidationError(f"The {label} may have at most {MAX_DEPTH} levels.")
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, list):
        for item in value:
            _check_json(item, label, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key)
            _check_json(item, label, depth + 1)


def _check_text(text: str) -> str:
    """Return the text, or raise ValidationError for characters that PostgreSQL cannot store."""
    if "\0" in text:
        raise ValidationError("U+0000 cannot be stored; remove it.")
    if not text.isascii() and _SURROGATE.search(text):
        raise ValidationError("Half of a character (a lone surrogate) cannot be stored; remove it.")
    return text
